#!/usr/bin/env bash
# Runs the tests, offline. Makes the environment .venv first if there is none.
#
#   scripts/test.sh                                 every test without a marker
#   scripts/test.sh -m "slow and not peer"          those that take long
#   scripts/test.sh -m peer                         those that install and run another program of the field
#   scripts/test.sh tests/test_tokenization.py -x   any arguments of pytest
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install.sh dev
# Tiny models are fastest on one thread.
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
# The whole suite is split over two processes. For a few tests, starting a second one costs more than it saves.
# Work is stolen only at the end, so that a file's tests share what its fixtures make.
[ $# -gt 0 ] || set -- --numprocesses 2 --dist worksteal
exec .venv/bin/python -m pytest "$@"
