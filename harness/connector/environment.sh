# Sourced by the install scripts of connector programs' environments (vllm/install.sh and so on).
# An environment is whole or not at all,
# and installing never fails: without it the suite is SKIPPED, and it says so.
#
#   environment TITLE PYTHON FOLDER LOGS SIZE FILE...   begins one, in FOLDER.part; ends the script when what is
#                                                       there was made from these files
#   pip ARGUMENT...                                     the new environment's pip, written down in the log
#   cpu_torch                                           torch for the CPU
#   python_files PIN NAME [FOLDER]                      of a package's wheel only the Python files, and a folder
#   give_up WHY, finish                                 how it ends
set -euo pipefail

say() { printf '== %s\n' "$*" >&2; }
give_up() { rm -rf "$part"; say "$title: SKIPPED, with the cases that need it: $1 (whole output: $log)"; exit 0; }
pip() { "$part/bin/python" -m pip --disable-pip-version-check --no-input "$@" </dev/null >>"$log" 2>&1; }

environment() {
  title=$1 target=$3 part=$3.part log=$4/install-$(basename "$3").log
  local python=$2 size=$5
  want=$(cat "${@:6}" | sha256sum)
  [[ -f $target/kvcts-stamp && $(<"$target/kvcts-stamp") == "$want" ]] && exit 0
  say "installing $title into ${target#"$PWD/"}: $size to download"
  mkdir -p "$4" "$(dirname "$target")"
  rm -rf "$part"
  : >"$log"
  "$python" -m venv "$part" >>"$log" 2>&1 || give_up "no virtual environment could be made"
}

# The CPU build of torch (0.2 GB) is not on every registry, and the default build is some GB of CUDA: it is
# taken from where pip is configured to look.
cpu_torch() {
  pip install --no-compile --no-deps --only-binary=:all: torch==2.13.0+cpu ||
    give_up "pip finds no torch 2.13.0+cpu; configure it for a registry that has CPU builds"
}

python_files() {
  pip download --no-deps --require-hashes --dest "$part/wheel" -r "$1" || give_up "$2's wheel could not be fetched"
  "$part/bin/python" - "$part/wheel" "$2" "${3:-}" >>"$log" 2>&1 <<'PYTHON' || give_up "$2's wheel could not be unpacked"
import glob, sys, sysconfig, zipfile
folder, name, whole = sys.argv[1:]
with zipfile.ZipFile(glob.glob(f"{folder}/{name}-*.whl")[0]) as wheel:
    kept = lambda file: file.endswith(".py") or ".dist-info/" in file or (whole and file.startswith(whole))
    wheel.extractall(sysconfig.get_paths()["purelib"], [file for file in wheel.namelist() if kept(file)])
PYTHON
  rm -rf "$part/wheel"
}

finish() {
  rm -rf "$target"
  printf '%s\n' "$want" >"$part/kvcts-stamp"
  mv "$part" "$target"
  say "  $title: $(du -sm "$target" | cut -f1) MB"
}
