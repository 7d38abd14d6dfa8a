#!/usr/bin/env bash
# KV-CTS from a bare checkout: installs what is missing, builds, runs. See usage below.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: ./run_suite.sh [OPTION...]
           Install what is missing, build, run the suites smoke, seeds, golden and crash, and write a report.
       ./run_suite.sh [OPTION...] self-test [ROOM... | --changed [REV] | --sanitized]
           Build and run every test of the project, or only those of the rooms named (folders of harness/, kernels, golden).
           --changed: the quick tests of the rooms that differ from REV (default: main). --sanitized: all tests, then all
           again under ASan and UBSan. Prints where the time went; the last line is "N passed, N failed[, N skipped]".
       ./run_suite.sh [OPTION...] nightly [--budget 30m] [--shard I/N] [--out DIR] [--since DIR] [--history FILE]
           [--rotate FILE] [--on slurm [--shards N] [--sbatch-option OPTION]...]
           Build, run the suites nightly, connectors, engines, engine-faults, vllm, sglang, stores and lmcache, then the
           tests that are too long for the self-test. A suite whose packages were never installed is not planned, and the
           report says so.
           --shard: one part of each suite, and the tests with the first part (kvcts merge joins the parts).
           --budget: what fits into that time, least recently run first (--rotate: the file that remembers,
           runs/rotation.json), without those tests. --since: the --out of an earlier night, to report what changed.
           --history: add the night to this file, and report what all its nights say. --on slurm: run each suite on the
           nodes of the Slurm allocation that this runs in, else of one that it asks for (reports/guide/slurm.md).
       ./run_suite.sh [OPTION...] pages [NAME...]
           Build with the laboratory and write the pages about the suite itself into build/pages.
       ./run_suite.sh [OPTION...] install      Only install.
       ./run_suite.sh [OPTION...] build        Only install and build.
       ./run_suite.sh [OPTION...] gpu-bundle [FOLDER]
           Make a folder (default: build/gpu-bundle) to take to a machine with a GPU: there, ./gpu-acceptance needs nothing
           but a driver.
       ./run_suite.sh [OPTION...] wheel [FOLDER]
           Make the Python wheels with the whole suite in them (default: build-wheel/dist), and try each: for .venv's Python,
           and for 3.12 and everything newer where such a Python is here.
       ./run_suite.sh [OPTION...] VERB ...     Build, then `kvcts VERB ...` (list, run, repro, explain, doctor, ...).

  --no-install   Install nothing; name what is missing.
  --no-cuda      Build no device kernels, and neither use nor install a CUDA compiler. Without a GPU only install, build,
                 self-test, pages and gpu-bundle do.
  --no-engines   Install no engine packages (harness/engines/packages); cases with these engines are SKIPPED.
  --with LIST    Also install what some suites need; names, comma-separated:
                   vllm         suite vllm (0.6 GB to download, 2.7 GB installed)
                   vllm-0.27.1  an older vLLM beside it, as large; without it, its cases are SKIPPED
                   sglang       suites sglang and stores (0.7 GB, 2.4 GB installed)
                   lmcache      suite lmcache (0.3 GB, 1.1 GB installed)
                   nixl-cu13    one more engine, NIXL's wheel for CUDA 13 (59 MB, 229 MB installed)
                   flashinfer   its headers, for a test; the engine packages include them
  --browser      Also install chromium-headless-shell (100 MB, 306 MB installed), which tests of the HTML report need;
                 without a Chromium they are skipped.
  --jobs N       Parallel compilers and cases (default: one per processor, and at most one per 2 GiB of memory).

What is installed: missing system packages with apt-get (as root, or through passwordless sudo), and pinned Python packages
in .venv inside the checkout; where there is no nvcc, a pinned one (104 MB); and pinned transfer engines, each version in its
own folder in .venv/engines (250 MB to download, 870 MB installed). Tested on Debian 12. Ubuntu 24.04 uses the same package
names but is untested (--browser is for Debian: Ubuntu has Chromium only as a snap; $KVCTS_BROWSER names any other browser).
TEXT
}

# ---- what is needed -------------------------------------------------------------------------------------------------
# One name a line: the name in Debian 12 (tried) and in Ubuntu 24.04 (untried; no name differs), then what it is for.
packages=$(sed 's/ *#.*//' <<'LIST'
g++                 # C++20 compiler: 12 in Debian 12, 13 in Ubuntu 24.04
cmake
ninja-build
ccache              # a second build is fast
pkg-config
python3             # self-test, golden generator
python3-venv
python3-dev         # the Python package
libgtest-dev        # tests
libgmock-dev
librapidcheck-dev   # property tests
libyaml-cpp-dev     # cases/
nlohmann-json3-dev
libfmt-dev
libcli11-dev        # command line
libsqlite3-dev      # run store
libxxhash-dev       # digests
libhdf5-dev         # golden tensors
libsodium-dev       # SHA-256, keys and signatures
zlib1g-dev          # checksums of packages
hdf5-tools          # h5dump
libucx-dev          # engine ucx
bubblewrap          # the sandbox of code under test
libseccomp-dev
elfutils            # eu-stack: stacks of a hung worker
gdb                 # the same, and Python stacks
LIST
)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
start=${KVCTS_STARTED:-$(date +%s)}
export KVCTS_STARTED=$start
install=1
cuda=1
engines=1
with=
jobs=

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'run_suite.sh: %s\n' "$*" >&2; exit "${status:-3}"; }

# ---- installing -----------------------------------------------------------------------------------------------------
missing_packages() {
  command -v dpkg-query >/dev/null || { printf '%s\n' "$packages"; return; }
  local have
  # shellcheck disable=SC2086
  have=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' $packages 2>/dev/null |
    awk '$2 == "installed" {print $1}' || true)
  grep -vxFf <(printf '%s\n' "$have") <<<"$packages" || true
}

install_system_packages() {
  local missing as_root=() log=$root/build/install.log
  missing=$(missing_packages | tr '\n' ' ')
  [[ -n ${missing// /} ]] || return 0
  if [[ $install == 0 ]]; then
    die "these packages are missing and --no-install forbids installing them: $missing"
  fi
  command -v apt-get >/dev/null || die "apt-get is not here; install these with this system's package manager: $missing"
  if [[ $(id -u) != 0 ]]; then
    sudo -n true 2>/dev/null || die "not root, and sudo asks for a password; run this first: sudo apt-get install $missing"
    as_root=(sudo -n)
  fi
  say "installing system packages: $missing"
  mkdir -p "$root/build"
  local apt=(${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=300)
  # The lists may be old or absent; update only when something is missing.
  { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends $missing; } </dev/null >"$log" 2>&1 || {
    tail -n 15 "$log" >&2
    die "apt-get could not install the packages above; the whole output is in $log"
  }
}

install_python_packages() {
  local stamp=$root/.venv/kvcts-stamp want log=$root/build/install.log
  local golden=$root/golden/requirements.txt tests=$root/harness/python/requirements.txt
  # Made anew when a pin, the interpreter or the checkout's place changes.
  want=$({ python3 -VV; command -v python3; printf '%s\n' "$root"; cat "$golden" "$tests"; } | sha256sum)
  [[ -f $stamp && $(<"$stamp") == "$want" && -x $root/.venv/bin/python ]] && return 0
  if [[ $install == 0 ]]; then
    say ".venv is missing or out of date, and --no-install forbids making it: tests that need it are skipped"
    return 0
  fi
  say "installing pinned Python packages into .venv"
  mkdir -p "$root/build"
  # Engine packages have pins of their own.
  [[ ! -d $root/.venv ]] || find "$root/.venv" -mindepth 1 -maxdepth 1 ! -name engines -exec rm -rf {} +
  { python3 -m venv "$root/.venv" &&
    "$root/.venv/bin/python" -m pip --disable-pip-version-check --no-input install -r "$golden" -r "$tests"; } \
    </dev/null >"$log" 2>&1 || {
    tail -n 15 "$log" >&2
    rm -f "$root/.venv/bin/python"
    die "pip could not install the pinned Python packages; the whole output is in $log"
  }
  printf '%s\n' "$want" >"$stamp"
}

# Without nanobind everything builds but the Python package, so nothing here ends the script. --no-deps: what
# they need is pinned, too.
install_package_build() {
  local stamp=$root/.venv/kvcts-package-stamp want log=$root/build/install.log
  local pins=$root/harness/python/package/requirements.txt
  [[ $install == 1 && -x $root/.venv/bin/python ]] || return 0
  want=$(sha256sum <"$pins")
  [[ -f $stamp && $(<"$stamp") == "$want" ]] && return 0
  say "installing what the Python package is built with into .venv"
  mkdir -p "$root/build"
  "$root/.venv/bin/python" -m pip --disable-pip-version-check --no-input install --no-deps --require-hashes -r "$pins" \
    </dev/null >"$log" 2>&1 || {
    say "pip could not install nanobind (see $log): the Python package is not built"
    return 0
  }
  printf '%s\n' "$want" >"$stamp"
}

# An nvcc of this machine; else the one in .venv, if any.
find_nvcc() {
  local path
  for path in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
    "$root"/.venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    if [[ -x $path ]]; then echo "$path"; return 0; fi
  done
  return 1
}

# Without a compiler everything builds but the device kernels, so nothing here ends the script.
install_cuda_packages() {
  local stamp=$root/.venv/kvcts-cuda-stamp want log=$root/build/install.log pins=("$root/kernels/cuda/requirements.txt") nvcc
  [[ $cuda == 1 && $install == 1 && -x $root/.venv/bin/python ]] || return 0
  nvcc=$(find_nvcc || true)
  [[ -n $nvcc && $nvcc != "$root"/.venv/* ]] || pins+=("$root/kernels/cuda/nvcc-requirements.txt")
  want=$(cat "${pins[@]}" | sha256sum)
  [[ -f $stamp && $(<"$stamp") == "$want" ]] && return 0
  say "installing pinned CUDA tools into .venv"
  mkdir -p "$root/build"
  "$root/.venv/bin/python" -m pip --disable-pip-version-check --no-input install --no-deps \
    $(printf -- '-r %s ' "${pins[@]}") </dev/null >"$log" 2>&1 || {
    say "pip could not install the pinned CUDA tools (see $log): without nvcc there are no device kernels"
    return 0
  }
  printf '%s\n' "$want" >"$stamp"
}

# Environments of real connectors, asked for by name only: they are large.
install_environments() {
  local name
  for name in ${with//,/ }; do
    [[ $name =~ ^(vllm|sglang|lmcache) && -x $root/.venv/bin/python ]] || continue  # the others are engine packages
    [[ $install == 1 ]] || {
      say "--no-install forbids installing $name: suite $name is SKIPPED unless it is there"
      continue
    }
    (cd "$root" &&
      "harness/connector/${name%%-*}/install.sh" "$root/.venv/bin/python" "$root/.venv/with/$name" "$root/build")
  done
}

install_engine_packages() {
  local more=()
  [[ -x $root/.venv/bin/python ]] || return 0
  [[ $install == 1 ]] || more+=(--no-install)
  local name globs=()
  [[ $engines == 0 ]] || globs+=('*')
  # Without the engines, FlashInfer's headers only where they are asked for; what is optional always.
  for name in flashinfer nixl-cu13; do
    [[ ,$with, != *,$name,* ]] || globs+=("$name-*")
  done
  for name in ${globs[@]+"${globs[@]}"}; do
    (cd "$root" &&
      harness/engines/packages/install.sh "$root/.venv/bin/python" "$root/.venv/engines" "$root/build" \
      ${more[@]+"${more[@]}"} "$name")
  done
}

# ---- building -------------------------------------------------------------------------------------------------------
# Processors, but never more than one job for 2 GiB of free memory (also of the control group's limit).
job_count() {
  local n by_memory limit
  n=$(nproc)
  by_memory=$(awk '/^MemAvailable:/ {print int($2 / 2097152)}' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit / 2147483648 < by_memory)); then by_memory=$((limit / 2147483648)); fi
  ((by_memory < n)) && n=$by_memory
  ((n > 0)) || n=1
  echo "$n"
}

# build PRESET TARGET...: configures when there is no usable build folder, builds, shows output only of what fails.
build() {
  local preset=$1 dir=$root/build log
  shift
  [[ $preset == default ]] || dir=$root/build-$preset
  log=$dir/build.log
  mkdir -p "$dir"
  # A folder made for another checkout (copied or moved) cannot be reused.
  if [[ -f $dir/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
    say "$dir was configured for another checkout: configuring anew"
    rm -rf "$dir/CMakeCache.txt" "$dir/CMakeFiles"
  fi
  # Device kernels come and go with the compiler and with --no-cuda.
  local wanted=OFF had=
  if [[ $cuda == 1 ]] && find_nvcc >/dev/null; then wanted=ON; fi
  [[ ! -f $dir/CMakeCache.txt ]] || had=$(sed -n 's/^KVCTS_DEVICE_CODE:INTERNAL=//p' "$dir/CMakeCache.txt")
  if [[ ! -f $dir/build.ninja || $had != "$wanted" ]]; then
    say "configuring ${dir#"$root/"}"
    (cd "$root" && cmake --preset "$preset") >"$log" 2>&1 ||
      (cd "$root" && cmake --fresh --preset "$preset") >"$log" 2>&1 || {
      tail -n 30 "$log" >&2
      die "cmake could not configure; the whole output is in $log"
    }
  fi
  say "building ${dir#"$root/"} with $jobs jobs"
  python3 "$root/harness/python/build.py" "$preset" "$log" "$jobs" "$@" || {
    grep -E -A12 'FAILED|error:' "$log" | head -n 60 >&2 || tail -n 30 "$log" >&2
    die "the build failed; the whole output is in $log"
  }
}

while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --no-install) install=0; shift ;;
    --browser) packages+=$'\nchromium-headless-shell'; shift ;;
    --no-cuda) cuda=0; export KVCTS_NO_CUDA=1; shift ;;
    --no-engines) engines=0; shift ;;
    --with)
      known='(vllm|vllm-0\.27\.1|sglang|lmcache|nixl-cu13|flashinfer)'
      [[ ${2:-} =~ ^$known(,$known)*$ ]] || {
        status=2
        die "--with expects vllm, vllm-0.27.1, sglang, lmcache, nixl-cu13 or flashinfer, comma-separated; found '${2:-}'"
      }
      with=$2
      shift 2
      ;;
    --jobs)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { status=2 die "--jobs expects a number of jobs, found '${2:-}'"; }
      jobs=$2
      shift 2
      ;;
    -*) status=2 die "unknown option '$1'; --help lists the options" ;;
    *) break ;;
  esac
done
verb=${1:-suites}
[[ $# -gt 0 ]] && shift
if [[ $verb =~ ^(suites|install|build)$ && $# -gt 0 ]]; then status=2 die "'$verb' takes no arguments, found '$1'"; fi
# Before anything is installed.
if [[ $verb == nightly ]]; then python3 "$root/harness/python/suites.py" --check --night "$@" || exit; fi

# Device kernels for 12 architectures take a compiler of their own and a minute: for those who need them.
if [[ ! $verb =~ ^(install|build|self-test|pages|gpu-bundle)$ && ! -e /dev/nvidiactl && ! -e /dev/dxg ]] &&
  ! grep -qs '^KVCTS_DEVICE_CODE:INTERNAL=ON' "$root/build/CMakeCache.txt"; then
  cuda=0
  export KVCTS_NO_CUDA=1
fi

if [[ $verb == wheel ]]; then engines=0; fi

if [[ $verb == self-test && ${1:-} != --* ]]; then  # before anything is installed
  for room in "$@"; do
    [[ -f $root/harness/$room/CMakeLists.txt || $room =~ ^(kernels|golden)(/|$) && -f $root/$room/CMakeLists.txt ]] || {
      status=2 die "self-test expects rooms (folders of harness/, kernels, golden), --changed or --sanitized, found '$room'"
    }
  done
fi

# A cluster on this machine, for a test of the self-test; not beside a Slurm that is not of these packages.
if [[ $verb == self-test && $install == 1 && ! -e /etc/slurm/slurm.conf ]]; then
  packages+=$'\nslurmctld\nslurmd\nslurm-client\nmunge\niproute2'
fi
install_system_packages
install_python_packages
install_package_build
install_cuda_packages
install_engine_packages
install_environments
[[ $verb == install ]] && exit 0
[[ -n $jobs ]] || jobs=$(job_count)
[[ -x $root/.venv/bin/python ]] && export KVCTS_PYTHON=$root/.venv/bin/python

case $verb in
  self-test) exec python3 "$root/harness/python/selftest.py" --jobs "$jobs" --started "$start" "$@" ;;
  build) build default all ;;
  suites | nightly)
    build default kvcts_programs
    [[ $engines == 1 ]] || set -- --no-engines "$@"
    [[ $verb == suites ]] || set -- --night "$@"
    exec python3 "$root/harness/python/suites.py" --jobs "$jobs" "$@"
    ;;
  pages)
    build default kvcts_programs
    (cd "$root" && cmake --preset default -DKVCTS_LAB=ON) > /dev/null
    build default all
    (cd "$root" && cmake --preset default -DKVCTS_LAB=OFF) > /dev/null
    exec "$root/harness/python/python" "$root/harness/lab/pages/pages.py" "$@"
    ;;
  gpu-bundle)
    [[ $# -le 1 ]] || { status=2 die "gpu-bundle takes one folder, found $# arguments"; }
    [[ $cuda == 1 ]] && find_nvcc >/dev/null ||
      die "gpu-bundle needs device kernels, and no nvcc was found (and none could be installed)"
    build default kvcts_programs
    [[ $# -gt 0 ]] || rm -rf "$root/build/gpu-bundle"
    exec "$root/harness/device/bundle.sh" "$root/build" "${1:-$root/build/gpu-bundle}"
    ;;
  wheel)
    [[ $# -le 1 ]] || { status=2 die "wheel takes one folder, found $# arguments"; }
    dist=${1:-$root/build-wheel/dist}
    "$KVCTS_PYTHON" "$root/harness/python/package/wheel.py" "$dist"
    exec "$KVCTS_PYTHON" "$root/harness/python/package/tests/wheel_test.py" "$dist"/*.whl
    ;;
  *) build default kvcts_programs; exec "$root/build/bin/kvcts" "$verb" "$@" ;;
esac
