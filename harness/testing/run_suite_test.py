"""run_suite.sh without a build: its options, its errors, and that it installs and makes nothing when nothing is
missing."""

from __future__ import annotations

import subprocess
import tempfile
import time

from kvtest import ROOT, finish

SCRIPT = ROOT / "run_suite.sh"


def script(*argv: str, cwd: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(SCRIPT), *argv], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


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
    assert "engine package" not in script("--no-install", "--no-cuda", "--no-engines", "install").stderr
    assert seconds < 5, f"with nothing to do it took {seconds:.1f} s"
    print(f"options, errors; nothing to install takes {seconds:.2f} s")
    return 0


if __name__ == "__main__":
    finish(main)
