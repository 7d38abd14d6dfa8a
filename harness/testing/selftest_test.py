"""The self-test's own bookkeeping: JUnit is counted correctly, a test that did not run is no pass, and the hard stop
works."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import doc_test
from kvtest import ROOT

sys.path.insert(0, str(ROOT / "harness" / "python"))
import build as building  # noqa: E402
import selftest  # noqa: E402

JUNIT = """<?xml version="1.0"?><testsuite tests="5">
<testcase name="a" time="1.5" status="run"><properties><property name="cmake_labels" \
value="unit;process"/></properties><system-out/></testcase>
<testcase name="b" time="0" status="fail"><failure message="x"/><system-out>no</system-out></testcase>
<testcase name="c" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skipped: no \
GPU</system-out></testcase>
<testcase name="d" time="0" status="notrun"><skipped message="Unable to find executable"/><system-out/></testcase>
<testcase name="e" time="0" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>x.cpp:3: Skipped
no device here
[  SKIPPED ] A.b</system-out></testcase></testsuite>"""


def counts(folder: Path) -> None:
    (folder / "junit.xml").write_text(JUNIT)
    tests = {t.name: t for t in selftest.read_junit(folder / "junit.xml")}
    assert {n: t.outcome for n, t in tests.items()} == {
        "a": "passed",
        "b": "failed",
        "c": "skipped",
        "d": "failed",
        "e": "skipped",
    }
    assert tests["a"].labels == ["unit", "process"] and tests["a"].seconds == 1.5
    assert selftest.reason_of_skip(tests["c"]) == "skipped: no GPU"
    assert selftest.reason_of_skip(tests["e"]) == "no device here"
    stage = selftest.Stage("x", tests=list(tests.values()), failure="and the stage itself")
    assert (stage.count("passed"), stage.count("failed"), stage.count("skipped")) == (1, 3, 2)


def rooms() -> None:
    """Which tests a changed file asks for, and what is asked for wrongly."""
    said = {
        "harness/scene/truth/walk.cpp": "scene",
        "harness/run/store/db.cpp": "run/store",
        "harness/scene/reader/flashinfer/paged_kv.cpp": "scene/reader",
        "kernels/cuda/plan.cpp": "kernels/cuda",
        "kernels/tag.cpp": "kernels",
        "cases/engines/ucx.yaml": "case/catalogue",
        "cases/README.md": None,
        "harness/python/selftest.py": "python",
        "README.md": None,
    }
    assert {path: selftest.room_of(path) for path in said} == said
    programs = selftest.test_programs()
    assert {("scene", "scene"), ("run/store", "run"), ("kernels/cuda", "kernels")} <= programs and len(
        {p for _, p in programs}
    ) == 8, programs
    assert {room for room, _ in programs} <= set(selftest.all_rooms())
    for argv, says in (
        (["attic"], "expected a room, found 'attic'"),
        (["--changed", "no-such-revision"], "found 'no-such-revision'"),
        (["layout", "--sanitized"], "more than one of them"),
        (["--often"], "--often"),
    ):
        wrong = subprocess.run([sys.executable, selftest.__file__, *argv], capture_output=True, text=True, timeout=60)
        assert wrong.returncode == 2 and says in wrong.stderr and len(wrong.stderr.splitlines()) == 1, wrong


def progress() -> None:
    """A build's output goes into the log whole; steps that are done are shown, at most every 30 s where no terminal is."""
    log, out = io.StringIO(), io.StringIO()
    building.EVERY_S, kept = 0, building.EVERY_S
    building.follow(io.StringIO("[1/4] a\nwarning\n[2/4] b\n"), log, out)
    building.EVERY_S = kept
    assert log.getvalue() == "[1/4] a\nwarning\n[2/4] b\n"
    assert [line.split(",")[0].strip() for line in out.getvalue().splitlines()] == ["1/4", "2/4"], out.getvalue()


def documents_are_compared() -> None:
    """doc_test's matcher: loose about figures and ellipses, strict about everything else."""
    same, other = doc_test.matches, lambda a, b: not doc_test.matches(a, b)
    assert same(["a ... b", "...", "z"], ["a x y b", "1", "2", "z"]) and same(["...", "z"], ["z"])
    assert same(["time 3.4 s, 1.5 MiB"], ["time 120 ms, 3 GiB"])
    assert other(["a ... b"], ["a x c"]) and other(["3 cases"], ["4 cases"])
    assert other(["a"], ["a", "b"]) and other(["a", "b"], ["a"]) and other(["PASS"], ["FAIL"])


def hard_stop() -> None:
    """A stage that never ends is ended, with what it started, and counted as failed."""
    script = f"""
import sys; sys.path.insert(0, {str(ROOT / "harness" / "python")!r})
import selftest
def everything(self):
    with self.stage("endless"):
        self.run(["bash", "-c", "sleep 1234.5 & sleep 1234.5"])
selftest.SelfTest.everything = everything
sys.exit(selftest.main())
"""
    begin = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", script, "--limit", "1"], capture_output=True, text=True, timeout=60)
    assert time.monotonic() - begin < 20
    assert ended.returncode == 1, ended
    assert ended.stdout.splitlines()[-1] == "0 passed, 1 failed", ended.stdout
    assert "60 minutes are over" in ended.stdout
    left = subprocess.run(
        ["bash", "-c", "grep -alz 1234.5 /proc/[0-9]*/cmdline 2>/dev/null | grep -v self"], capture_output=True, text=True
    ).stdout
    sleepers = [p for p in left.split() if Path(p).exists() and b"sleep" == Path(p).read_bytes().split(b"\0")[0]]
    assert not sleepers, sleepers


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        counts(Path(name))
    rooms()
    progress()
    documents_are_compared()
    hard_stop()
    print("counts, rooms, progress, comparison of documents, and hard stop")
    return 0


if __name__ == "__main__":
    sys.exit(main())
