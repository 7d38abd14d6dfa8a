"""Exit statuses: 0 as expected, 1 not as expected, 2 usage, 4 nothing selected, 130 interrupted; and the files that a
run leaves. For 5 see completeness_test.py."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from kvtest import (
    KVCTS,
    MARK,
    ROOT,
    command,
    expect,
    finish,
    kvcts,
    kvcts_json,
    marked_processes,
    need_program,
    results,
    wait_until_gone,
)


def one_expectation_changed(folder: Path) -> Path:
    """A copy of the catalogue in which one expected outcome of the seeds is another."""
    cases = folder / "cases"
    shutil.copytree(ROOT / "cases", cases)
    for path in sorted((cases / "seeds").glob("*.yaml")):
        text = path.read_text()
        changed = re.sub(r"rank-mismatch", "truncated", text, count=1)
        if changed != text:
            path.write_text(changed)
            return cases
    raise AssertionError("no seed expects rank-mismatch")


def broken_engine(folder: Path) -> None:
    """A hang that is expected leaves its engine broken: what was to come after it is no success."""
    case = "case: mine/{0}\ngeometry: {{base: small, layers: 1}}\nproducer: {{layout: vllm-fa-nhd}}\nengine: fixture\n{1}\n"
    hang = "engine_options: {fault: spin, canary: CANARY}\ndeadlines: {transfer: 1200ms}\nexpected: {outcome: HANG}"
    for canary, status, says in (("passes", 0, "1 HANG"), ("fails", 1, "set aside")):
        file = folder / f"{canary}.yaml"
        file.write_text(case.format("first", hang.replace("CANARY", canary)) + "---\n" + case.format("second", ""))
        expect(status, "run", "--file", str(file), "-j", "1", "--out", str(folder / canary), says=says)
        expect(status, "report", str(folder / canary))
    first, second = results(folder / "fails")
    assert [first["verdict"], second["outcome"], second["verdict"]] == ["as expected", "SKIPPED", "unexpected"], (
        first,
        second,
    )


def damaged_store(run: Path) -> None:
    """A store that does not hold what was put into it is an unreadable file, whenever that is found."""
    for number, change in enumerate(
        (
            "UPDATE executions SET wall_ns = wall_ns + 1",
            "UPDATE results SET facts = '{}'",
            "UPDATE planned SET digest = 'x' || digest",
            "UPDATE phases SET phase = 'no such phase'",
            "UPDATE executions SET body = '{'",
            "DELETE FROM planned WHERE ordinal = 3",
        )
    ):
        copy = run.parent / f"damaged-{number}"
        shutil.copytree(run, copy)
        with contextlib.closing(sqlite3.connect(copy / "store.db")) as store:
            store.execute(change)
            store.commit()
        expect(2, "run", "--resume", str(copy), err="damaged")
        expect(2, "report", str(copy), err="damaged")


def interrupt(folder: Path) -> None:
    """Ctrl-C in the middle: status 130, a store that --resume completes, nothing left."""
    mark = uuid.uuid4().hex
    run = subprocess.Popen(
        [str(KVCTS), "run", "--suite", "smoke", "--shard", "1/4", "--out", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, MARK: mark},
    )
    end = time.monotonic() + 60
    # Workers are there when cases run; a child before that is one of the program's own probes.
    while not [p for p in marked_processes(mark) if "kvcts-worker" in command(p)] and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 130, f"interrupted, it ended with {run.returncode}: {out.decode()[-1500:]}"
    assert not wait_until_gone(mark, 5), "processes are left after an interruption"
    planned = kvcts_json("list", "--suite", "smoke", "--shard", "1/4")["cases"]
    ended = kvcts("run", "--resume", str(folder), timeout=600)
    assert ended.status == 0, f"--resume after an interruption ended with {ended.status}: {ended.err or ended.out[-1500:]}"
    results = kvcts_json("report", str(folder))["results"]
    assert sorted(r["id"] for r in results) == sorted(c["id"] for c in planned)


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-exit-") as name:
        folder = Path(name)
        expect(0, "run", "--suite", "seeds", "--out", str(folder / "right"))
        cases = one_expectation_changed(folder)
        expect(1, "--cases", str(cases), "run", "--suite", "seeds", "--out", str(folder / "wrong"))
        expect(1, "report", str(folder / "wrong"))
        expect(
            4,
            "run",
            "--suite",
            "seeds",
            "--where",
            "dtype == fp32 && dtype == fp16",
            "--out",
            str(folder / "empty"),
            err="nothing selected",
        )
        assert not (folder / "empty").exists(), "an empty selection left a run folder"
        expect(4, "list", "--suite", "seeds", "--id", "no-such-case*", err="nothing selected")
        expect(2, "run", "--suite", "smok", err="smoke")
        expect(2, "run", "--suite", "seeds", "--require", "teleport", err="teleport")
        expect(2, "run", err="selection")
        expect(2, "list", "--suite", "seeds", "--where", "dtipe == fp16", err="dtype")
        expect(2, "list", "--suite", "seeds", "--shard", "3/2", err="3/2")
        expect(2, "list", "--file", str(folder / "nothing.yaml"), err="nothing.yaml")
        expect(2, "run", "--resume", str(folder / "nothing"), err="nothing")
        expect(2, "repro", "kv/producer=nothing")
        expect(2, "report", str(folder))
        expect(2, "run", "--suite", "seeds", "--out", str(folder / "right"))  # a run is never overwritten
        damaged_store(folder / "right")
        broken_engine(folder)
        interrupt(folder / "interrupted")
    print("every exit status as documented; an interrupted run was completed by --resume")
    return 0


if __name__ == "__main__":
    finish(main)
