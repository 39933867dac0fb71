#!/usr/bin/env bash
# Trains a recipe's model on the files of its corpus, and scores it as papers do. It may be stopped and started again at
# any time. scripts/reproduce/reproduce.py says more.
#
#   scripts/reproduce/reproduce.sh --recipe NAME --data DIR --output DIR [--direction SOURCE-TARGET] [--seed N]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

"$root/scripts/install.sh" dev
# Nothing comes from the Hub, and no library should ask it.
export HF_HUB_OFFLINE=1
exec "$root/.venv/bin/python" "$root/scripts/reproduce/reproduce.py" "$@"
