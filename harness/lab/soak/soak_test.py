"""soak.py: a few seconds of one engine end at the baseline; a worker that accumulates descriptors is detected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import soak
from kvtest import finish, need_program  # noqa: E402


def main() -> int:
    need_program()
    grows = soak.Worker([(float(i), {"descriptors": 10 + i, "threads": 2, "MiB": 20}) for i in range(100)])
    begin, end = grows.grown()["descriptors"]
    assert end > begin + soak.SPARE["descriptors"], (begin, end)
    steady = soak.Worker([(float(i), {"descriptors": 10 + i % 7, "threads": 2, "MiB": 20}) for i in range(100)])
    assert all(end <= begin for begin, end in steady.grown().values()), steady.grown()
    done = subprocess.run(
        [sys.executable, Path(soak.__file__), "--minutes", "0.1", "--engine", "shm"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "at the baseline" in done.stdout, done
    print(done.stdout)
    return 0


if __name__ == "__main__":
    finish(main)
