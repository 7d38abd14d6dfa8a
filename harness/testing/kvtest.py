"""Shared by the script tests: where the program is, how to run it, which processes of a run are alive. Standard library
only."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(os.environ.get("KVCTS_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BUILD = Path(os.environ.get("KVCTS_BINARY_DIR", ROOT / "build"))
KVCTS = BUILD / "bin" / "kvcts"
MARK = "KVCTS_TEST_MARK"  # inherited by every process of a run that a test starts


@dataclass
class Ended:
    status: int  # exit status; negative: signal
    out: str
    err: str


def kvcts(
    *argv: str, timeout: float = 300, env: dict[str, str] | None = None, cwd: Path | None = None, program: Path = KVCTS
) -> Ended:
    """Runs the program to its end. A timeout is the caller's failure: it raises."""
    done = subprocess.run(
        [str(program), *argv], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, cwd=cwd, env=env
    )
    return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def kvcts_json(*argv: str, **kwargs):
    """Output of a verb with --json. Raises when it failed."""
    ended = kvcts(*argv, "--json", **kwargs)
    if ended.status not in (0, 1, 5):
        raise AssertionError(f"kvcts {' '.join(argv)} ended with {ended.status}: {ended.err}")
    return json.loads(ended.out)


def environment(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(e.split("=", 1) for e in raw.decode(errors="replace").split("\0") if "=" in e)


def marked_processes(mark: str) -> list[int]:
    """Living processes whose environment carries the mark: everything that a marked run started, whatever became of its
    parents."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and environment(int(entry)).get(MARK) == mark:
            found.append(int(entry))
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def wait_until_gone(mark: str, seconds: float) -> list[int]:
    """What is still alive after that time."""
    end = time.monotonic() + seconds
    while (left := marked_processes(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def memory_files() -> set[str]:
    """Names in /dev/shm: memory files proper vanish with their processes, named ones would stay."""
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def expect(status: int, *argv: str, says: str = "", err: str = "") -> str:
    """What `kvcts argv` printed. Raises when it ended otherwise, when its output lacks `says` or its errors `err`, or
    when a refusal is not one line."""
    ended = kvcts(*argv)
    assert ended.status == status, (
        f"kvcts {' '.join(argv)} ended with {ended.status}, expected {status}: {ended.err or ended.out[-1500:]}"
    )
    assert says in ended.out, f"{says!r} is not in\n{ended.out}"
    assert err in ended.err, f"{err!r} is not in\n{ended.err}"
    assert status not in (2, 3, 4) or len(ended.err.splitlines()) == 1, f"one line was expected: {ended.err!r}"
    return ended.out


def results(run: Path) -> list[dict]:
    """The results that a run left in its folder."""
    return json.loads((run / "results.json").read_text())["results"]


def finish(main: Callable[[], int | None]) -> NoReturn:
    """Ends the test as `main` does; a failed assertion is a line and status 1."""
    try:
        sys.exit(main())
    except AssertionError as failure:
        where = traceback.extract_tb(failure.__traceback__)[-1]
        print(f"FAILED: {failure}\n{where.filename}:{where.lineno}: {where.line}")
        sys.exit(1)


def sandbox_works() -> bool:
    """By its own judgement, so that a sandbox which the suite wrongly holds to be missing is seen."""
    flags = [
        "--unshare-user-try",
        "--unshare-pid",
        "--unshare-ipc",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "true",
    ]
    return (
        os.environ.get("KVCTS_SANDBOX") != "off"
        and shutil.which("bwrap") is not None
        and subprocess.run(["bwrap", *flags], capture_output=True).returncode == 0
    )


def need_program() -> None:
    """Exits with the status for "skipped" when the program is not built."""
    if not KVCTS.exists():
        print(f"skipped: {KVCTS} is not built; build the target kvcts_programs")
        sys.exit(77)
