#!/usr/bin/env bash
# Runs the test suite, offline, after making the environment .venv where there is none.
#
#   scripts/test.sh                                 all tests but the slow ones
#   scripts/test.sh -m slow                         the slow ones
#   scripts/test.sh tests/test_tokenization.py -x   any arguments of pytest
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install.sh dev
# Tiny models are fastest on one thread.
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
# The whole suite is split over two processes; to start a second one for a few tests would cost more than it saves.
[ $# -gt 0 ] || set -- --numprocesses 2
exec .venv/bin/python -m pytest "$@"
