#!/usr/bin/env bash
# Trains a model on the raw files of Multi30k, and scores it as papers do. It may be stopped and started again at any
# time. scripts/reproduce/reproduce_multi30k.py says more.
#
#   scripts/reproduce/reproduce_multi30k.sh --data DIR --output DIR [--direction en-de|de-en]
#     [--recipe small|tiny|best] [--seed N]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

"$root/scripts/install.sh" dev
# Nothing comes from the Hub, and no library should ask it.
export HF_HUB_OFFLINE=1
exec "$root/.venv/bin/python" "$root/scripts/reproduce/reproduce_multi30k.py" "$@"
