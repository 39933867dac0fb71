#!/usr/bin/env bash
# From nothing to a trained, evaluated, saved model, on a corpus made on the spot: see scripts/quickstart.py.
#
#   scripts/quickstart.sh [--source-language en] [--target-language de] [--output DIR]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

"$root/scripts/install.sh" quickstart
# Nothing is loaded from the Hub: say so, that no library asks.
export HF_HUB_OFFLINE=1
exec "$root/.venv/bin/python" "$root/scripts/quickstart.py" "$@"
