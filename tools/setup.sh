#!/usr/bin/env bash
# Installs what building and testing need: Debian packages (as root) and a virtual environment in .venv.
# Does nothing, quickly, when all is there.   tools/setup.sh [--lint]   --lint adds what the checks of CI use.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build make ccache libcli11-dev libfmt-dev libexpected-dev nlohmann-json3-dev libxxhash-dev
          libprotozero-dev libopenblas-serial-dev zlib1g-dev libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev protobuf-compiler chromium)
[ "${1:-}" = --lint ] && packages+=(clang-19 clang-format-19 libclang-rt-19-dev codespell)

python=${PYTHON:-python3}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then packages+=(python3-venv); fi
if ! "$python" -c 'import os, sysconfig; assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null; then
  packages+=(python3-dev)
fi

missing=()
for package in "${packages[@]}"; do
  case $package in
    cmake | ninja-build | make | g++ | ccache)  # a newer one from elsewhere is as good
      command -v "${package%-build}" >/dev/null && continue ;;
  esac
  dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then
    echo "setup: installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "setup: please run: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

# The stamp holds the requirements it was made from, so an edit of a file is seen.
stamp=.venv/requirements.stamp
if ! cat requirements-dev.txt requirements-engines.txt | cmp -s - "$stamp"; then
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  echo "setup: installing Python packages into .venv"
  .venv/bin/pip install -q --disable-pip-version-check torch==2.13.0 2> >(grep -v '^WARNING: Location' >&2)
  .venv/bin/pip install -q --disable-pip-version-check -r requirements-dev.txt 2> >(grep -v '^WARNING: Location' >&2)
  if ! .venv/bin/pip install -q --disable-pip-version-check --no-deps --only-binary :all: -r requirements-engines.txt 2> >(grep -v '^WARNING: Location' >&2); then
    [ "$(uname -m)" != x86_64 ] || exit 1
    echo "setup: no ggml engines for this machine, their tests are skipped" >&2
  fi
  cat requirements-dev.txt requirements-engines.txt > "$stamp"
fi
