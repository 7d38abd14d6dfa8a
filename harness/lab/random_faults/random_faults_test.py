"""A sample of kvcts-random-faults: everything is caught, there is no false alarm, and naming is no worse than before.

    random_faults_test.py SINGLE PAIRS CORRECT    how many of each

At least 98 % of single faults must be named; of two at once none. The sample and its figures are the same each time."""

import os
import pathlib
import subprocess
import sys

program = pathlib.Path(os.environ["KVCTS_BINARY_DIR"]) / "bin" / "kvcts-random-faults"
cases = pathlib.Path(os.environ["KVCTS_SOURCE_DIR"]) / "cases"
single, pairs, correct = sys.argv[1:]
floors = ["--named", "98"]
sys.exit(
    subprocess.run(
        [program, "--cases", cases, "--single", single, "--pairs", pairs, "--correct", correct, "--show", *floors]
    ).returncode
)
