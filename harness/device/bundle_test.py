"""The GPU bundle: made, moved, run with an empty environment. Without a driver it says SKIPPED; on the stand-in driver
it writes its document."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE, BUILD = Path(__file__).resolve().parent, Path(os.environ["KVCTS_BINARY_DIR"])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kvcts bundle ") as name:
        made, moved = Path(name) / "made", Path(name) / "moved to"
        done = subprocess.run([str(HERE / "bundle.sh"), str(BUILD), str(made)], capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout.strip())
        made.rename(moved)
        bare = {"PATH": "/usr/bin:/bin", "HOME": name}
        for program in moved.glob("bin/*"):
            needs = subprocess.run(
                ["ldd", str(program)], env={**bare, "LD_LIBRARY_PATH": str(moved / "lib")}, capture_output=True, text=True
            ).stdout
            outside = [
                line
                for line in needs.splitlines()
                if "=>" in line
                and str(moved) not in line
                and not any(f"{lib}.so" in line for lib in ("libc", "libm", "libdl", "libpthread", "librt", "libresolv"))
            ]
            assert not outside, f"{program.name} needs libraries of this machine: {outside}"

        ended = subprocess.run(
            [str(moved / "gpu-acceptance"), str(Path(name) / "out")],
            env={**bare, "KVCTS_CUDA_DRIVER": "/nonexistent"},
            cwd=name,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0 and "SKIPPED" in ended.stdout, ended.stdout + ended.stderr
        assert "skipped" in json.loads((Path(name) / "out/gpu.json").read_text())

        shutil.copy(BUILD / "lib/kvcts/testing/libkvcts_fake_cuda.so", moved / "lib")
        stand_in = {
            **bare,
            "KVCTS_CUDA_DRIVER": str(moved / "lib/libkvcts_fake_cuda.so"),
            "LD_LIBRARY_PATH": str(moved / "lib"),
        }
        tried = subprocess.run(
            [
                str(moved / "kvcts"),
                "run",
                "--suite",
                "gpu-acceptance",
                "--id",
                "gpu/after",
                "--out",
                str(Path(name) / "run"),
            ],
            env=stand_in,
            cwd=name,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert tried.returncode == 0, tried.stdout + tried.stderr
    print("made, moved, SKIPPED without a driver, a case in device memory on the stand-in")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
