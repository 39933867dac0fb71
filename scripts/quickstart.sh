#!/usr/bin/env bash
# Installs the package, makes a corpus, and trains, evaluates and saves a small model: see scripts/quickstart.py.
#
#   scripts/quickstart.sh [--source-language en] [--target-language de] [--output DIR]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

"$root/scripts/install.sh" quickstart
# Nothing comes from the Hub, and no library should ask it.
export HF_HUB_OFFLINE=1
exec "$root/.venv/bin/python" "$root/scripts/quickstart.py" "$@"
