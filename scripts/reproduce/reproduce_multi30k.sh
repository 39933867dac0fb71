#!/usr/bin/env bash
# From the raw files of Multi30k to scores as papers report them, in one command that may be stopped and started again
# at will: see scripts/reproduce/reproduce_multi30k.py.
#
#   scripts/reproduce/reproduce_multi30k.sh --data DIR --output DIR [--direction en-de|de-en] [--recipe small|tiny|best] [--seed N]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

"$root/scripts/install.sh" dev
# Nothing is loaded from the Hub: say so, that no library asks.
export HF_HUB_OFFLINE=1
exec "$root/.venv/bin/python" "$root/scripts/reproduce/reproduce_multi30k.py" "$@"
