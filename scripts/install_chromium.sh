#!/usr/bin/env bash
# Installs Debian's chromium if it is missing: tests/demo/test_demo_in_browser.py opens the demo page in it.
set -euo pipefail

if command -v chromium >/dev/null; then exit; fi
fail() {
  echo "Error: $1 Install the package chromium by hand, and run this again." >&2
  exit 1
}
command -v apt-get >/dev/null || fail "The browser chromium must be on PATH, but is not, and there is no apt-get."
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "The browser chromium must be on PATH, but is not, and only root can install it."
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium
command -v chromium >/dev/null || fail "apt-get has installed chromium, but it is not on PATH."
