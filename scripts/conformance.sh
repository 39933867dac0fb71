#!/usr/bin/env bash
# Runs transformers' own common tests (ModelTesterMixin, ConfigTester) on this package's classes.
#
# The tests come from the source distribution of the installed transformers version, which is downloaded once into
# .cache/conformance; later runs need no network. Arguments go to pytest. It fails if a test fails, or if a name in
# tests/conformance/passing_tests.txt is no longer among the passes.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

scripts/install.sh dev
python=$root/.venv/bin/python

version=$("$python" -c 'from importlib.metadata import version; print(version("transformers"))')
suites=$root/.cache/conformance/transformers-$version
if [ ! -d "$suites" ]; then
  echo "Fetching the tests of transformers $version ..."
  download=$root/.cache/conformance/download.$$
  mkdir -p "$download"
  trap 'rm -rf "$download"' EXIT
  "$python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$download" \
    "transformers==$version"
  tar -xzf "$download/transformers-$version.tar.gz" -C "$download" "transformers-$version/tests"
  # Some of the tests read the sources by this path.
  mkdir "$download/transformers-$version/src"
  ln -s "$("$python" -c 'import transformers; print(transformers.__path__[0])')" "$download/transformers-$version/src/"
  mv "$download/transformers-$version" "$suites"
fi

# The suites import each other as `tests.x`: a package of that name, with our files in it, in a process of its own.
touch "$suites/tests/__init__.py"
cp tests/conformance/common_suites.py "$suites/tests/test_seq2seq_transformer.py"
cp tests/conformance/recorder.py "$suites/tests/conftest.py"

export CONFORMANCE_PINNED=$root/tests/conformance/passing_tests.txt
export CONFORMANCE_PASSED=$root/.cache/conformance/passing_tests.txt
# One test starts a second pytest for itself, where its models would go uncounted, unless it finds itself in one.
export _INSIDE_SUB_PROCESS=1
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
cd "$suites"
: > pytest.ini
exec "$python" -m pytest -c pytest.ini -p no:cacheprovider -W ignore::pytest.PytestUnknownMarkWarning \
  tests/test_seq2seq_transformer.py "$@"
