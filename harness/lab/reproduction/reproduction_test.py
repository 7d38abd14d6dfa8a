"""reports/reproduction.md is what its record says, and the record has all that is stated and no other answer; a rule is played as often as it lacks."""

from __future__ import annotations

import difflib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, finish, need_program  # noqa: E402

TOOL = ROOT / "harness" / "lab" / "reproduction" / "reproduce.py"
RECORD, PAGE = ROOT / "reports" / "reproduction.json", ROOT / "reports" / "reproduction.md"
RULE = """rule: odd
title: odd offsets
steps: [{do: transfer, as: write, within: 10s, copies: [{local_at: 1, remote_at: 3}]}, {do: check, as: bytes}]
timed: write
promise: nobody's
promised: {shm: 9s}
expect: {shm: "write: done; bytes: arrived"}
"""


def tool(*argv: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, TOOL, *map(str, argv)], capture_output=True, text=True, timeout=280)


def main() -> int:
    need_program()
    printed = tool("--page")
    if printed.returncode != 0 or printed.stdout != PAGE.read_text():
        print("\n".join(difflib.unified_diff(PAGE.read_text().splitlines(), printed.stdout.splitlines(), str(PAGE), "reproduce.py --page", lineterm="", n=0)))
        print(printed.stderr + "write it again: harness/lab/reproduction/reproduce.py, then harness/lab/reproduction/reproduce.py --page > reports/reproduction.md")
        return 1
    with tempfile.TemporaryDirectory() as place:
        wrong = Path(place) / "record.json"
        for change, says in ((lambda all: all["rules"].pop("idle-target"), "rule idle-target was not played with shm"),
                             (lambda all: all["rules"]["idle-target"]["shm"]["seen"].update({"write: pending": 1}), "rule idle-target with shm: "),
                             (lambda all: all["rules"].update({"no-such": {}}), "there is no rule no-such"),
                             (lambda all: all["fixtures"].pop("engine-faults/nixl-idle-target"), "fixture engine-faults/nixl-idle-target was not played")):
            record = json.loads(RECORD.read_text())
            change(record)
            wrong.write_text(json.dumps(record))
            printed = tool("--page", "--record", wrong)
            assert printed.returncode == 1 and says in printed.stderr, (says, printed.stderr)

        cases, record = Path(place) / "cases", Path(place) / "own.json"
        shutil.copytree(ROOT / "cases", cases, ignore=shutil.ignore_patterns("museum", "oracles", "rules"))
        (cases / "rules").mkdir()
        (cases / "rules" / "a.yaml").write_text(RULE)
        for runs, played, together in ((2, 2, 2), (3, 1, 3), (3, 0, 3)):
            done = tool("--cases", cases, "--record", record, "--rule", "odd", "--runs", runs)
            assert done.returncode == 0 and done.stdout.count(f"{played} x write: done; bytes: arrived") == (played > 0), (runs, done)
            (one,) = json.loads(record.read_text())["rules"]["odd"].values()
            assert one["seen"] == {"write: done; bytes: arrived": together} and len(one["took_ms"]) == together, one
    return 0


if __name__ == "__main__":
    finish(main)
