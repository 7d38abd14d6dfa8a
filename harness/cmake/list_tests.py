"""Lists the gtests of a program as CTest entries, with the labels and the deadline of the source file that each stands in.

usage: list_tests.py PROGRAM TABLE OUT
TABLE has a line per source file: path from the checkout, room, seconds, labels, comma-separated. Standard library only.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

program, table, out = sys.argv[1:]
files = {}
for line in Path(table).read_text().splitlines():
    path, room, seconds, labels = line.split()
    files[path] = (room, seconds, labels.replace(",", ";"))

with tempfile.TemporaryDirectory() as folder:
    listing = Path(folder) / "tests.json"
    subprocess.run([program, "--gtest_list_tests", f"--gtest_output=json:{listing}"], check=True, stdout=subprocess.DEVNULL)
    suites = json.loads(listing.read_text())["testsuites"]

lines = []
for suite in suites:
    for test in suite["testsuite"]:
        known = [properties for path, properties in files.items() if test["file"].endswith(path)]
        if not known:
            sys.exit(f"{program}: {test['file']} is in no call of kvcts_test()")
        room, seconds, labels = known[0]
        if suite["name"].startswith("Nightly/"):  # an instantiation that takes long
            labels = f"nightly;room:{room}"
        name, own = f"{suite['name']}.{test['name']}", f"{room.split('/')[0]}.{suite['name']}.{test['name']}"
        lines.append(
            f"add_test([==[{own}]==] [==[{program}]==] [==[--gtest_filter={name}]==] --gtest_also_run_disabled_tests)"
        )
        lines.append(
            f"set_tests_properties([==[{own}]==] PROPERTIES TIMEOUT {seconds} LABELS [==[{labels}]==]"
            " SKIP_REGULAR_EXPRESSION [==[\\[  SKIPPED \\]]==])"
        )
Path(out).write_text("\n".join(lines) + "\n")
