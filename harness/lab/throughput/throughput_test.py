"""The loops of throughput/ move their lists, through the ABI and without, and produce a page. Times are not checked."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import BUILD, finish  # noqa: E402

TOOL = Path(__file__).resolve().parent / "write_page.py"
SHAPES = ("4,096 x 4 KiB", "512 x 64 KiB", "32 x 1 MiB", "1 x 64 MiB")


def page(engine: str, **environment: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        argv = [
            sys.executable,
            TOOL,
            "--build",
            BUILD,
            "--page",
            f"{place}/page.md",
            "--turns",
            "1",
            "--seconds",
            "0",
            "--engine",
            engine,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=250, env={**os.environ, **environment})
        text = Path(f"{place}/page.md").read_text()
        assert done.returncode == 0, (engine, text, done.stderr)
        return text


def main() -> int:
    if not (BUILD / "bin" / "kvcts-engine-throughput-copy").exists():
        print("skipped: built without benchmarks")
        return 77
    skipped = []
    for engine in ("memcpy", "shm", "ucx-tcp", "nixl-cma", "mooncake"):  # every loop
        text = page(engine)
        if "Not measured" in text and engine not in ("memcpy", "shm"):
            skipped.append(text.split("Not measured:")[1].strip())
            continue
        for shape in SHAPES:
            assert text.count(f"| {shape} | ") == 1, (engine, text)
    text = page("nixl-cma", KVCTS_ENGINE_PACKAGES="/no/such/place")
    assert "`nixl-cma`: " in text.split("Not measured:")[1], text
    if skipped:
        print("skipped: " + "; ".join(skipped))
    return 77 if skipped else 0


if __name__ == "__main__":
    finish(main)
