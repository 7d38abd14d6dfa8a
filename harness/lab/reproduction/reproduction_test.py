"""A rule is played as often as its record lacks, and a record without a stated rule, or with another answer, makes
no page."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, finish, need_program  # noqa: E402

TOOL = ROOT / "harness" / "lab" / "reproduction" / "reproduce.py"
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
    with tempfile.TemporaryDirectory() as place:
        cases, record, wrong = Path(place) / "cases", Path(place) / "own.json", Path(place) / "wrong.json"
        shutil.copytree(ROOT / "cases", cases, ignore=shutil.ignore_patterns("museum", "oracles", "rules"))
        (cases / "rules").mkdir()
        (cases / "rules" / "a.yaml").write_text(RULE)
        for runs, played, together in ((2, 2, 2), (3, 1, 3), (3, 0, 3)):
            done = tool("--cases", cases, "--record", record, "--rule", "odd", "--runs", runs)
            assert done.returncode == 0 and done.stdout.count(f"{played} x write: done; bytes: arrived") == (played > 0), (
                runs,
                done,
            )
            (one,) = json.loads(record.read_text())["rules"]["odd"].values()
            assert one["seen"] == {"write: done; bytes: arrived": together} and len(one["took_ms"]) == together, one

        for change, says in (
            (lambda all: all["rules"].pop("odd"), "rule odd was not played with shm"),
            (lambda all: all["rules"]["odd"]["shm"]["seen"].update({"write: pending": 1}), "rule odd with shm: "),
            (lambda all: all["rules"].update({"no-such": {}}), "there is no rule no-such"),
            (lambda all: None, "fixture engine-faults/nixl-idle-target was not played"),
        ):
            changed = json.loads(record.read_text())
            change(changed)
            wrong.write_text(json.dumps(changed))
            printed = tool("--page", "--cases", cases, "--record", wrong)
            assert printed.returncode == 1 and says in printed.stderr, (says, printed.stderr)
    return 0


if __name__ == "__main__":
    finish(main)
