#!/usr/bin/env bash
# install.sh PYTHON FOLDER LOGS: an environment with the Python files of SGLang 0.5.23, torch for the CPU and the transfer
# engines, for the connector programs of suite sglang. --no-deps: what SGLang asks for would bring CUDA.
# 0.7 GB to download, 2.4 GB in place.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
source "$here/../environment.sh"
wheel=$here/requirements-sglang-0.5.23.txt

environment "SGLang 0.5.23" "$1" "$2" "$3" "0.7 GB" "$wheel" "$here/requirements.txt" "${BASH_SOURCE[0]}"
cpu_torch
pip install --no-compile --no-deps --only-binary=:all: --require-hashes -r "$here/requirements.txt" ||
  give_up "its packages could not be installed"
# It looks for its kernels' sources when it is imported; nothing compiled is used.
python_files "$wheel" sglang sglang/kernels/jit/
finish
