#!/usr/bin/env bash
# Makes an environment of its own for a program that this package is compared with, and prints its Python; for
# transformers.js it is the folder node_modules.
#
#   scripts/install_peer.sh pymarian|argostranslate|deepspeed|transformers.js
#
# It lies in .cache/peers/NAME. Where it was made before, nothing is done and no network is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:?"name a peer: scripts/install_peer.sh pymarian|argostranslate|deepspeed|transformers.js"}
folder=$PWD/.cache/peers/$name

if [ "$name" = transformers.js ]; then
  if [ ! -e "$folder/installed" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    (cd "$folder" && npm install --silent --ignore-scripts @huggingface/transformers@4.3.2 >&2)
    touch "$folder/installed"
  fi
  echo "$folder/node_modules"
  exit
fi

case $name in
  pymarian) packages=(pymarian==1.12.42 numpy) ;;
  argostranslate) packages=(torch==2.13.0 argostranslate) ;; # torch first: else pip takes a build for CUDA
  deepspeed) packages=(torch==2.13.0 setuptools deepspeed) ;;
  *) echo "Error: the peer must be pymarian, argostranslate or deepspeed, but is $name instead." >&2; exit 1 ;;
esac

if [ ! -e "$folder/installed" ]; then
  rm -rf "$folder"
  "${PYTHON:-python3}" -m venv "$folder"
  for package in "${packages[@]}"; do
    "$folder/bin/python" -m pip install --quiet --no-build-isolation "$package" >&2
  done
  touch "$folder/installed"
fi
echo "$folder/bin/python"
