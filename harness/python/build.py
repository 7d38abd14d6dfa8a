"""Builds targets of a preset: the whole output goes to a log, the progress to standard error.

    build.py PRESET LOG JOBS TARGET...

Standard library only: it runs before .venv exists. Exit status: the build's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
EVERY_S = 30  # interval between lines if there is no terminal to update


def command(preset: str, jobs: str | int, targets: list[str]) -> list[str]:
    return ["cmake", "--build", "--preset", preset, "-j", str(jobs), "--target", *targets]


def follow(lines: IO[str], log: IO[str], out: IO[str] = sys.stderr) -> None:
    """Copies the build's lines ("[12/345] ...") into the log and reports the steps done and the estimated seconds
    left."""
    begin = said = time.monotonic()
    terminal, shown = out.isatty(), False
    for line in lines:
        log.write(line)
        now = time.monotonic()
        step = re.match(r"\[(\d+)/(\d+)\]", line)
        if not step or now - said < (0.2 if terminal else EVERY_S):
            continue
        said, shown, (done, total) = now, True, map(int, step.groups())
        left = (now - begin) / done * (total - done)
        out.write(
            f"{chr(13) if terminal else ''}   {done}/{total}, about {left:.0f} s left{'    ' if terminal else chr(10)}"
        )
        out.flush()
    if shown and terminal:
        out.write("\r" + " " * 40 + "\r")


def main() -> int:
    preset, log, jobs, *targets = sys.argv[1:]
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command(preset, jobs, targets),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout
        follow(process.stdout, file)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
