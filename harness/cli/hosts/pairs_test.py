"""kvcts run --hosts ... --pairs all|find, with a stand-in for the run of a pair (KVCTS_PAIR_PROGRAM): cells, links, verdict,
what to do next and exit status."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import KVCTS, finish, kvcts, need_program  # noqa: E402

# run --hosts A,B --out DIR WORDS...
# BAD: hosts, or links A-B, that fail. DEAD: hosts that do not answer. The others run the selection here; with FAST nothing.
STAND_IN = """#!/bin/sh
test "$1 $2 $4" = "run --hosts --out" || exit 3
pair=$3 out=$5 a=${3%,*} b=${3#*,}
shift 5
echo "$pair: $*" >> "$TALK"
for one in $BAD; do
  case $one in $a | $b | $a-$b) echo "1 of 1 case did not end as expected"; exit 1;; esac
done
for one in $DEAD; do
  case $one in $a | $b) echo "kvcts run: $one: no route to host"; exit 2;; esac
done
test -z "$FAST" || exit 0
exec "$REAL" run --out "$out" "$@"
"""
CASE = ("--id", "seeds/xformers-t4#wrong-inner-order")


def run(folder: Path, hosts: str, how: str, *words: str, **settings: str):
    """The ended process, its folder, pairs.json, and the text of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "pair"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    out = folder / f"out{len(list(folder.iterdir()))}"
    environment = {"KVCTS_PAIR_PROGRAM": str(program), "REAL": str(KVCTS), "TALK": str(folder / "talk"), **settings}
    ended = kvcts("run", "--hosts", hosts, "--pairs", how, *(words or CASE), "--out", str(out), env=os.environ | environment)
    data = json.loads((out / "pairs.json").read_text()) if (out / "pairs.json").exists() else {}
    page = (out / "index.html").read_text() if data else ""
    return ended, out, data, page


def all_pairs_pass(folder: Path) -> None:
    ended, out, data, page = run(folder, "a,b=127.0.0.2,c", "all")
    assert ended.status == 0, ended.out + ended.err
    assert "No pair failed: 3 pairs of 3 hosts" in ended.out and data["complete"], ended.out
    assert [(one["producer"], one["consumer"]) for one in sorted(data["pairs"], key=lambda one: one["run"])] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    assert all(one["planned"] == one["ran"] == 1 and one["failures"] == 0 for one in data["pairs"]), data
    links = re.findall(r'<td class="v-pass e-compiled"><a href="([^"]+)"', page)
    assert sorted(links) == ["a+b/index.html", "a+c/index.html", "b+c/index.html"], links
    assert all((out / link).exists() for link in links)


def failures_are_shown(folder: Path) -> None:
    ended, out, data, page = run(folder, "a,b,c,d", "all", *CASE, "--seed", "7", BAD="b-d", FAST="1")
    assert ended.status == 1 and "1 of 6 pairs failed" in ended.out, ended.out
    assert "b-d: 1 of 1 case did not end as expected" in ended.out
    assert f"Run it again: kvcts run --hosts 'b,d' '--id' '{CASE[1]}' '--seed' '7'" in ended.out, ended.out
    assert re.findall(r'class="v-failed e-compiled"><a href="([^"]+)"', page) == ["b+d.log"], page[-3000:]
    assert page.count('"v-pass e-compiled"') == 5 and 'class="verdict bad"' in page
    assert (out / "b+d.log").read_text().startswith("1 of 1 case")
    talk = (folder / "talk").read_text().splitlines()
    assert len(talk) == 6 and all(line.endswith(": " + " ".join([*CASE, "--seed", "7"])) for line in talk), talk


def an_unreachable_host_is_no_pass(folder: Path) -> None:
    ended, _, data, page = run(folder, "a,b,c,d", "all", DEAD="d", FAST="1")
    assert ended.status == 5 and "3 of 6 pairs failed" in ended.out, (ended.status, ended.out)
    assert page.count("no run") == 3 and "d: no route to host" in page
    ended = run(folder, "a,b,c", "all", DEAD="c", FAST="1")[0]
    assert ended.status == 5 and "2 of 3 pairs failed" in ended.out, (ended.status, ended.out)
    ended = run(folder, "a,b,c", "all", "--id", "no/such/case")[0]
    assert ended.status == 2 and "no pair started" in ended.err and "no/such/case" in ended.err, (ended.status, ended.err)


def one_fault_is_found(folder: Path) -> None:
    names = ",".join(f"n{i:02}" for i in range(16))
    ended, _, data, page = run(folder, names, "find", BAD="n05", FAST="1")
    assert ended.status == 1 and "Found: node n05 (" in ended.out, ended.out
    assert data["found"]["hosts"] == ["n05"] and data["rounds"] <= 4
    assert re.search(r"Run it again: kvcts run --hosts '(n05,n\d\d|n\d\d,n05)' ", ended.out), ended.out
    ended, out, data, page = run(folder, names, "find", BAD="n03-n11", FAST="1")
    assert ended.status == 1 and "Found: link n03-n11 (" in ended.out, ended.out
    assert data["found"]["links"] == [["n03", "n11"]] and (out / "n03+n11.2.log").exists()
    assert "Found: link n03-n11" in page and "kvcts run --hosts &#39;n03,n11&#39;" in page, page[-2000:]
    ended, _, data, page = run(folder, "a,b,c,d,e", "find", DEAD="c", FAST="1")
    assert ended.status == 1 and data["found"]["hosts"] == ["c"], (ended.status, ended.out)
    ended, _, data, page = run(folder, "a,b,c,d,e", "find", FAST="1")
    assert ended.status == 0 and "No pair failed: 10 of 10 links tested" in ended.out, ended.out


def several_are_not_called_one(folder: Path) -> None:
    ended, _, data, _ = run(folder, "a,b,c,d,e,f,g,h", "find", BAD="b g", FAST="1")
    assert ended.status == 1 and "More than one: node b, node g" in ended.out, ended.out
    ended, _, data, _ = run(folder, "a,b", "find", BAD="a", FAST="1")
    assert ended.status == 1 and "two hosts cannot tell" in ended.out, ended.out
    ended, _, data, _ = run(folder, "a,b,c,d", "find", BAD="a b c d", FAST="1")
    assert "Every pair failed" in ended.out and data["found"]["hosts"] == [], ended.out


def wrong_words_are_refused(folder: Path) -> None:
    for words, says in (
        (("--hosts", "a", "--pairs", "all"), "two or more hosts"),
        (("--hosts", "a,b,a", "--pairs", "all"), "found 'a' twice"),
        (("--pairs", "all"), "--hosts"),
    ):
        ended = kvcts("run", *words, *CASE, "--out", str(folder / "none"))
        assert ended.status == 2 and says in ended.err and not (folder / "none").exists(), ended.err
    ended = kvcts("run", "--hosts", "a,b", "--pairs", "all", *CASE)
    assert ended.status == 2 and "--out" in ended.err, ended.err


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts") as folder:
        for test in (
            all_pairs_pass,
            failures_are_shown,
            an_unreachable_host_is_no_pass,
            one_fault_is_found,
            several_are_not_called_one,
            wrong_words_are_refused,
        ):
            test(Path(folder) / test.__name__)


if __name__ == "__main__":
    finish(main)
