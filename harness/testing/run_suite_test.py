"""run_suite.sh without a build: its options, its errors, and that it installs and makes nothing when nothing is
missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from kvtest import ROOT, finish

SCRIPT = ROOT / "run_suite.sh"


def script(*argv: str, cwd: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(SCRIPT), *argv], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def device_kernels_asked_for(root: Path, *argv: str) -> bool:
    """Whether a checkout of run_suite.sh alone would configure them: a cmake that only says what it was given."""
    cmake = root / "cmake"
    cmake.write_text('#!/bin/sh\necho "${KVCTS_NO_CUDA:-0}" > "${0%/*}/no-cuda"\nexit 1\n')
    cmake.chmod(0o755)
    shutil.copy(SCRIPT, root)
    for folder in ("golden", "harness", "kernels"):
        if not (root / folder).exists():
            (root / folder).symlink_to(ROOT / folder)
    subprocess.run(
        [str(root / SCRIPT.name), "--no-install", *argv],
        # KVCTS_NO_CUDA: of a self-test that was started with --no-cuda.
        env=os.environ | {"PATH": f"{root}:{os.environ['PATH']}", "KVCTS_NO_CUDA": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    return (root / "no-cuda").read_text() == "0\n"


def device_kernels() -> None:
    """For verbs that need them, and where they were made before."""
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        return
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        assert not device_kernels_asked_for(root, "list") and not device_kernels_asked_for(root)
        assert device_kernels_asked_for(root, "build")
        (root / "build").mkdir(exist_ok=True)
        (root / "build" / "CMakeCache.txt").write_text(
            f"CMAKE_HOME_DIRECTORY:INTERNAL={root}\nKVCTS_DEVICE_CODE:INTERNAL=ON\n"
        )
        assert device_kernels_asked_for(root, "list")


def main() -> int:
    shown = script("--help")
    assert shown.returncode == 0 and shown.stdout.startswith("usage: ./run_suite.sh") and not shown.stderr
    for argv, says in (
        (["--bogus"], "--bogus"),
        (["--jobs", "many"], "many"),
        (["--jobs"], "--jobs"),
        (["self-test", "now"], "now"),
        (["nightly", "now"], "now"),
    ):
        wrong = script(*argv)
        assert wrong.returncode == 2 and says in wrong.stderr and len(wrong.stderr.splitlines()) == 1, wrong
    # The browser is installed only by name.
    wanted = script("--no-install", "--browser", "--no-cuda", "--no-engines", "install")
    assert wanted.returncode == 0 or "chromium-headless-shell" in wanted.stderr, wanted
    with tempfile.TemporaryDirectory() as elsewhere:
        begin = time.monotonic()
        done = script("--no-install", "--no-cuda", "install", cwd=elsewhere)
        seconds = time.monotonic() - begin
    if done.returncode == 3 and "packages are missing" in done.stderr:
        print(
            "skipped: " + done.stderr.strip()
        )  # built by hand on another system: what is missing is named, nothing is installed
        return 77
    assert done.returncode == 0, done.stderr
    device_kernels()
    assert "engine package" not in script("--no-install", "--no-cuda", "--no-engines", "install").stderr
    assert seconds < 5, f"with nothing to do it took {seconds:.1f} s"
    print(f"options, errors; nothing to install takes {seconds:.2f} s")
    return 0


if __name__ == "__main__":
    finish(main)
