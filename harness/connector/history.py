"""Prints the result of each case in a run of suite history, one line each: the connector's own answer, or the
diagnosis.

history.py RUN
"""

import json
import sys
from pathlib import Path

with open(Path(sys.argv[1]) / "results.json") as file:
    results = json.load(file)["results"]
for result in results:
    if "#" in result["id"]:  # controls: they pass
        continue
    silent = result["phase"] == "compare"  # the connector said nothing
    answer = (
        f"no error, {result['wrong_bytes']:,} wrong bytes"
        if silent
        else result["message"].split(";")[0].split(" (at connector)")[0]
    )
    print(f"{result['id'].removeprefix('history/'):38}{answer}")
passed = sum("#" in result["id"] and result["outcome"] == "PASS" for result in results)
print(f"{passed} controls passed")
