"""SIGINT, SIGTERM and SIGHUP end every verb with 130 and one line, and leave no process; a run writes its reports and
--resume continues."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from kvtest import KVCTS, MARK, command, expect, finish, marked_processes, need_program, results, wait_until_gone

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HANGING = (
    "case: slow/{0}\ngeometry: {{base: small, layers: 1}}\nproducer: {{layout: vllm-fa-nhd}}\nengine: fixture\n"
    "engine_options: {{fault: spin}}\ndeadlines: {{transfer: 60s}}\n"
)


def begin(arguments: list[str], mark: str, **more) -> subprocess.Popen:
    return subprocess.Popen(
        [str(KVCTS), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, MARK: mark},
        **more,
    )


def catches(pid: int, number: int) -> bool:
    """Whether the process has taken the signal over: the earliest moment at which it can be sent."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def wait_for(what, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.01)


def working(mark: str) -> bool:
    return any("kvcts-worker" in command(p) for p in marked_processes(mark))


def verbs(folder: Path) -> dict[str, tuple[list[str], bool]]:
    """Verb -> command line that takes seconds, and whether it starts workers."""
    slow = str(folder / "slow.yaml")
    return {
        "sabotage": (["sabotage", "--suite", "smoke"], True),
        "rules": (["rules"], False),
        "conformance": (["conformance", "memcpy"], False),
        "minimize": (["minimize", slow, "--deadline", "60"], True),
        "golden": (["golden", "verify"], False),
        "repro": (["repro", "slow/one", "--file", slow], True),
        "dump": (["dump", slow, "--region", "consumer/g0/r0/kv.L0"], True),
        "list": (["list", "--suite", "full"], False),
    }


def every_verb(folder: Path) -> None:
    for name, (arguments, workers) in verbs(folder).items():
        for number in SIGNALS:
            mark = uuid.uuid4().hex
            process = begin(arguments, mark)
            wait_for(lambda: process.poll() is not None or (catches(process.pid, number) and (working(mark) or not workers)))
            if workers:
                time.sleep(0.2)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            words = f"kvcts {' '.join(arguments)}, {number.name}: {process.returncode}: {err[-300:]!r}"
            assert process.returncode == 130, words
            assert len(err.splitlines()) == 1 and err.startswith(b"kvcts") and err.endswith(b": interrupted\n"), words
            assert b"caught" not in out, f"{words}: an interrupted campaign says how much was caught: {out!r}"
            assert not wait_until_gone(mark, 10), f"{words}: processes are left"


def a_run(folder: Path) -> None:
    """A terminal that closes: the run's reports are there, and --resume continues."""
    for number in SIGNALS:
        out, mark = folder / f"run-{number.name}", uuid.uuid4().hex
        process = begin(["run", "--suite", "smoke", "--out", str(out)], mark)
        wait_for(lambda: working(mark))
        time.sleep(0.3)
        process.stdout.close()  # the terminal is gone
        process.stderr.close()
        process.send_signal(number)
        process.wait(timeout=60)
        assert process.returncode == 130, (number.name, process.returncode)
        for report in ("results.json", "junit.xml", "index.html"):
            assert (out / report).exists(), f"{number.name}: no {report}"
        assert any(not r["decided"] for r in results(out)), f"{number.name}: it was over before the signal came"
        assert not wait_until_gone(mark, 10), f"{number.name}: processes are left"
    expect(0, "run", "--resume", str(folder / "run-SIGHUP"))


def nohup(folder: Path) -> None:
    """A program that ignores SIGHUP from the start continues."""
    mark = uuid.uuid4().hex
    process = begin(
        ["run", "--suite", "seeds", "--out", str(folder / "nohup")],
        mark,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wait_for(lambda: working(mark) or process.poll() is not None)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, (process.returncode, err)


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-interrupt-") as name:
        folder = Path(name)
        (folder / "slow.yaml").write_text(HANGING.format("one"))
        every_verb(folder)
        a_run(folder)
        nohup(folder)
    print("every verb ends 130 with one line when interrupted; a run writes its reports and can be resumed")
    return 0


if __name__ == "__main__":
    finish(main)
