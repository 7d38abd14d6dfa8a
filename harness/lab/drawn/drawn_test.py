"""A small draw of the suite drawn ends without an alarm, even where tails of 4-bit codes and replicas meet; drawn.py
adds up slices and resumes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import drawn
from kvtest import finish, kvcts, need_program  # noqa: E402

# Several ranks with the same heads, blocks whose last one is not full, codes that share bytes.
TAILS = "dtype.bits == 4 && ptp >= 2 && pbs >= 16 && cbs >= 16"


def main() -> int:
    need_program()
    for where, points in ((None, 300), (TAILS, 150)):
        with tempfile.TemporaryDirectory() as place:
            narrowed = [] if where is None else ["--where", where]
            ended = kvcts(
                "run",
                "--suite",
                "drawn",
                "--draw",
                str(points),
                "--draw-seed",
                "7",
                *narrowed,
                "-j",
                "2",
                "--out",
                str(Path(place) / "run"),
            )
            assert ended.status == 0 and f"{points} cases" in ended.out, ended.out[-4000:] + ended.err[-1000:]
            print(ended.out[-400:])
    with tempfile.TemporaryDirectory() as place:
        records = Path(place) / "records.jsonl"
        for slices in (1, 2):
            sys.argv = ["drawn.py", "--slices", str(slices), "--points", "20", "--records", str(records)]
            assert drawn.main() == 0
            assert len(drawn.read_records(records)) == slices
        total = drawn.Sum(drawn.read_records(records))
        assert sum(total.outcomes.values()) == 40 and "0 alarms" in drawn.page(total), drawn.page(total)
        total.alarms.append("kv/producer=unknown")
        assert "1 alarms" in drawn.page(total) and "`kv/producer=unknown`" in drawn.page(total)
    return 0


if __name__ == "__main__":
    finish(main)
