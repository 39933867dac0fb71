#!/usr/bin/env bash
# Makes the virtual environment .venv and installs this package in it, at the tested versions.
#
#   scripts/install.sh quickstart    with what the quick start needs (an extra)
#   scripts/install.sh dev           with every extra, and with what tests and checks need (a dependency group)
#
# If that was done before, it ends at once and needs no network. An installation that was broken off is started over.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-}
case $kind in
  quickstart|dev) ;;
  *) echo "Error: the first argument must be quickstart or dev, but is '$kind' instead." >&2; exit 1 ;;
esac

# What an installation depends on. The folder is part of it since a virtual environment cannot be moved.
wanted=$({ pwd -P; cat pyproject.toml scripts/constraints.txt; } | cksum)

# dev includes quickstart.
is_installed() { grep -qsxF "$wanted" ".venv/installed-$kind" .venv/installed-dev && .venv/bin/python -c ''; }

install_package() {
  local install=(.venv/bin/python -m pip install --constraint scripts/constraints.txt)
  case $kind in
    quickstart) "${install[@]}" --editable ".[quickstart]" ;;
    # Python 3.11 brings a pip that knows no dependency groups.
    dev) "${install[@]}" "pip>=25.1" && "${install[@]}" --editable . --group dev ;;
  esac
}

find_python() {
  for name in python3 python3.13 python3.12 python3.11 python; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  local found
  found=$(python3 --version 2>/dev/null || echo missing)
  echo "Error: Python 3.11 or newer must be on PATH, but python3 is $found instead." >&2
  echo "Install a newer Python, put it on PATH, and run this again." >&2
  return 1
}

if is_installed; then exit; fi

# One installation at a time. Where there is no flock (macOS), that is left to the user.
mkdir -p .cache
if command -v flock >/dev/null; then
  exec 9>.cache/install.lock
  flock -n 9 || { echo "Waiting for another installation to end ..."; flock 9; }
  if is_installed; then exit; fi
fi

python=$(find_python)
# The mark of an installation that was broken off, or a Python that is gone.
if [ -e .venv/installing ] || { [ -e .venv ] && ! .venv/bin/python -c '' 2>/dev/null; }; then
  echo "Removing the incomplete environment .venv ..."
  rm -rf .venv
fi
echo "Installing hf-seq2seq ($kind) into .venv with $("$python" --version). This takes a few minutes, once ..."
mkdir -p .venv
# Killed from here on, the environment may hold half a package. An error of pip's own leaves it as it was.
touch .venv/installing
trap 'exit 130' INT TERM
[ -x .venv/bin/python ] || "$python" -m venv .venv
install_package || {
  rm .venv/installing
  echo "Error: the installation failed, see above. Mend that and run this again." >&2
  exit 1
}
echo "$wanted" > ".venv/installed-$kind"
rm .venv/installing
