#!/bin/sh
# Joins a night that ran on several machines: one run per suite, what changed since last night, the history.
# usage, in the checkout: reports/ci/join-night.sh KEPT PART...
#   PART  the --out folder of each `./run_suite.sh nightly --shard I/N --out PART`; all N of them
#   KEPT  a folder that CI keeps between nights: history.db, and last/SUITE of the last night
# Writes runs/whole/SUITE. Exit status: the worst of all suites, as of nightly; 3 if a part is missing.
set -u
[ $# -ge 2 ] && [ -d "$2" ] || { echo "join-night.sh: expected KEPT and the folders of all parts" >&2; exit 2; }
kept=$1
shift
kvcts=build/bin/kvcts
worst=0

worse() {
  case $1,$worst in
    0,* | 5,[135] | 1,[13]) ;;
    5,* | 1,*) worst=$1 ;;
    *) worst=3 ;;
  esac
}

rm -rf runs/whole
mkdir -p runs/whole "$kept"
for suite in $(for part; do (cd "$part" && ls -d -- */); done | sort -u); do
  suite=${suite%/} runs=
  for part; do runs="$runs $part/$suite"; done
  # shellcheck disable=SC2086
  $kvcts merge "runs/whole/$suite" $runs
  worse $?
done

set -- runs/whole/*/store.db
[ -f "$1" ] || exit 3
for store; do
  run=${store%/store.db} last=$kept/last/${store#runs/whole/}
  last=${last%/store.db} since=
  $kvcts history add "$run" --history "$kept/history.db" || worse 3
  if [ -f "$last/store.db" ]; then
    since="--since $last"
    $kvcts compare "$last" "$run"
  fi
  # shellcheck disable=SC2086
  $kvcts report "$run" $since --history "$kept/history.db" --out "$run" >/dev/null
  mkdir -p "$last"
  cp "$store" "$last/"  # a suite that could not be joined keeps its earlier night
done
$kvcts history show --history "$kept/history.db" || worse 3
exit "$worst"
