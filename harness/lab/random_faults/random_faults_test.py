"""A sample of kvcts-random-faults: everything is caught, there is no false alarm, and naming is no worse than before.

    random_faults_test.py SINGLE PAIRS CORRECT    how many of each

The targets are 98 % of single faults and 85 % of pairs (a pair is named when the primary class is one of the two).
The sample and its figures are the same each time."""

import os
import pathlib
import subprocess
import sys

program = pathlib.Path(os.environ["KVCTS_BINARY_DIR"]) / "bin" / "kvcts-random-faults"
cases = pathlib.Path(os.environ["KVCTS_SOURCE_DIR"]) / "cases"
single, pairs, correct = sys.argv[1:]
floors = ["--named", "98", "--named-pairs", "85"]
sys.exit(
    subprocess.run(
        [program, "--cases", cases, "--single", single, "--pairs", pairs, "--correct", correct, "--show", *floors]
    ).returncode
)
