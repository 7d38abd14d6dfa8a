"""install.sh with a fake pip: packages are installed completely or not at all, a second run is quick, and the caller
never fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

PIP = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
for last; do :; done
while [ "$1" != --target ]; do shift; done
mkdir -p "$2" && echo library >"$2/library.so"
case "$last" in *broken*) echo "ERROR: No matching distribution found"; exit 1 ;; esac
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        shutil.copy(HERE / "install.sh", root / "install.sh")
        python = root / "python"
        python.write_text(PIP)
        python.chmod(0o755)
        (root / "good-1.txt").write_text("# wheel: cp311\ngood==1 --hash=sha256:00\n")
        (root / "broken-2.txt").write_text("broken==2 --hash=sha256:00\n")
        target = root / "engines"

        def install(*more: str) -> str:
            done = subprocess.run(
                [root / "install.sh", python, target, root / "logs", *more], capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, done
            return done.stderr

        def calls() -> list[str]:
            return (root / "calls").read_text().splitlines() if (root / "calls").exists() else []

        refused = install("--no-install")
        assert "good-1 is missing" in refused and "broken-2 is missing" in refused and not calls() and not target.exists(), (
            refused
        )
        first = install()
        assert "good-1: " in first and "broken-2: SKIPPED" in first and "No matching distribution" in first, first
        assert sorted(os.listdir(target)) == ["good-1"], "a package that failed leaves nothing"
        asked = next(line for line in calls() if line.endswith("good-1.txt"))
        for option in ("--require-hashes", "--no-deps", "--only-binary=:all:", "--python-version 3.11", "--abi cp311"):
            assert option in asked, (option, asked)
        assert "--python-version" not in next(line for line in calls() if line.endswith("broken-2.txt"))
        (root / "extra-3.txt").write_text("# optional\nextra==3 --hash=sha256:00\n")
        assert "extra" not in install() and "extra-3: " in install("extra-*"), "what is optional is installed by name only"
        (root / "broken-2.txt").unlink()
        before = len(calls())
        assert install() == "" and len(calls()) == before, "nothing to do the second time"
        (root / "good-1.txt").write_text("# wheel: cp311\ngood==1.1 --hash=sha256:00\n")
        (target / "good-1" / "old.so").touch()
        assert "good-1: " in install() and not (target / "good-1" / "old.so").exists(), "made anew when its pins change"

    for pins in sorted(HERE.glob("*.txt")):
        lines = [line for line in pins.read_text().splitlines() if line and not line.startswith("#")]
        assert lines and all("==" in line and "--hash=sha256:" in line for line in lines), (
            f"{pins.name}: every line is pinned and has a hash"
        )
    # Engines name exactly the pinned packages.
    for entry in sorted((HERE.parents[2] / "cases" / "engines").glob("*.yaml")):
        for package in re.findall(r"KVCTS_ENGINE_PACKAGE: ([^,}\s]+)", entry.read_text()):
            assert (HERE / f"{package}.txt").is_file(), (
                f"{entry.name}: package {package} has no pins in harness/engines/packages"
            )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
