#!/usr/bin/env bash
# install.sh PYTHON FOLDER LOGS: an environment with LMCache 0.5.6, torch for the CPU and the few packages that LMCache's CPU
# paths import, for the
# connector programs of suite lmcache. --no-deps: what LMCache asks for would bring CUDA.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
source "$here/../environment.sh"

environment "LMCache 0.5.6" "$1" "$2" "$3" "0.3 GB" "$here/requirements.txt" "${BASH_SOURCE[0]}"
cpu_torch
pip install --no-compile --no-deps --only-binary=:all: --require-hashes -r "$here/requirements.txt" ||
  give_up "its packages could not be installed"
finish
