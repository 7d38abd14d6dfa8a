"""Random faults sent through released engines: everything is caught, named and reported exactly as with memcpy.
Without its package an engine is left out."""

import os
import pathlib
import subprocess
import sys

program = pathlib.Path(os.environ["KVCTS_BINARY_DIR"]) / "bin" / "kvcts-random-faults"
cases = pathlib.Path(os.environ["KVCTS_SOURCE_DIR"]) / "cases"
ENGINES = ["memcpy", "nixl-tcp", "ucx-1.22-cma", "mooncake"]
SAMPLE = ["--single", "7", "--pairs", "1", "--correct", "2", "--named", "0", "--show"]  # named enough: random_faults_test.py

skipped = []
for engine in ENGINES:
    done = subprocess.run([program, "--cases", cases, *SAMPLE, "--engine", engine], capture_output=True, text=True)
    print(engine + ": " + done.stdout[-1500:] + done.stderr)
    if done.returncode == 77 and "./run_suite.sh install" in done.stderr:
        skipped.append(engine)
    elif done.returncode != 0 or "10 of 10 cases are reported identically" not in done.stdout:
        sys.exit(f"FAILED: {engine} ended with {done.returncode}")
print(f"left out: {', '.join(skipped) or 'none'}")
