"""A sample of kvcts-random-faults: everything is caught, nothing is a false alarm, the targets of naming hold."""
import os
import pathlib
import subprocess
import sys

program = pathlib.Path(os.environ["KVCTS_BINARY_DIR"]) / "bin" / "kvcts-random-faults"
cases = pathlib.Path(os.environ["KVCTS_SOURCE_DIR"]) / "cases"
sys.exit(subprocess.run([program, "--cases", cases, "--single", "300", "--pairs", "60", "--correct", "300", "--show"]).returncode)
