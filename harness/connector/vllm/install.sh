#!/usr/bin/env bash
# install.sh PYTHON FOLDER LOGS: an environment with the Python files of vLLM 0.33.0, torch for the CPU and the transfer engines, for the connector
# programs of suite vllm. 0.6 GB to download, 2.6 GB in place. Whole or not at all; it never fails: without it the suite is SKIPPED, and it says so.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
python=$1 target=$2 log=$3/install-vllm.log
part=$target.part

say() { printf '== %s\n' "$*" >&2; }
give_up() { rm -rf "$part"; say "vLLM: SKIPPED, with the cases that need it: $1 (whole output: $log)"; exit 0; }

want=$(cat "$here"/requirements*.txt "${BASH_SOURCE[0]}" | sha256sum)
[[ -f $target/kvcts-stamp && $(<"$target/kvcts-stamp") == "$want" ]] && exit 0
say "installing vLLM's connectors into ${target#"$PWD/"}: 0.6 GB to download"
mkdir -p "$3" "$(dirname "$target")"
rm -rf "$part"
: >"$log"
pip() { "$part/bin/python" -m pip --disable-pip-version-check --no-input "$@" </dev/null >>"$log" 2>&1; }

"$python" -m venv "$part" >>"$log" 2>&1 || give_up "no virtual environment could be made"
# The CPU build of torch (0.2 GB) is not on every registry, and the default build is some GB of CUDA: it is taken from where pip is configured to look.
pip install --no-compile --no-deps --only-binary=:all: torch==2.13.0+cpu || give_up "pip finds no torch 2.13.0+cpu; configure it for a registry that has CPU builds"
pip install --no-compile --no-deps --only-binary=:all: --require-hashes -r "$here/requirements.txt" || give_up "its packages could not be installed"
# Of vLLM's own wheel (336 MB) only the Python files: nothing compiled is used.
pip download --no-deps --require-hashes --dest "$part/wheel" -r "$here/requirements-vllm.txt" || give_up "vLLM's wheel could not be fetched"
"$part/bin/python" - "$part/wheel" >>"$log" 2>&1 <<'PYTHON' || give_up "vLLM's wheel could not be unpacked"
import glob, sys, sysconfig, zipfile
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/vllm-*.whl")[0]) as wheel:
    wheel.extractall(sysconfig.get_paths()["purelib"], [name for name in wheel.namelist() if name.endswith(".py") or ".dist-info/" in name])
PYTHON
rm -rf "$part/wheel" "$target"
printf '%s\n' "$want" >"$part/kvcts-stamp"
mv "$part" "$target"
say "  vLLM 0.33.0: $(du -sm "$target" | cut -f1) MB"
