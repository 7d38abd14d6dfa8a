"""Do two checks of one transport agree? Compares outcomes of the runs and verdicts of the conformance tests, id by id.

    same_package.py PACKAGE SECOND      PACKAGE has run/results.json and conformance.json, SECOND again/results.json and conformance.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def outcomes(run: Path) -> dict[str, str]:
    return {result["id"]: result["outcome"] for result in json.loads((run / "results.json").read_text())["results"]}


def verdicts(file: Path) -> dict[str, str]:
    return {test["test"]: test["verdict"] for test in json.loads(file.read_text())["tests"]}


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    first, second = Path(sys.argv[1]), Path(sys.argv[2])
    unlike = 0
    for what, one, other in (("cases", outcomes(first / "run"), outcomes(second / "again")),
                             ("conformance tests", verdicts(first / "conformance.json"), verdicts(second / "conformance.json"))):
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                unlike += 1
                print(f"{name}: {one.get(name, 'absent')} in the package, {other.get(name, 'absent')} here")
        print(f"{len(one)} {what} compared")
    print("the second check agrees" if unlike == 0 else f"{unlike} differ")
    return 1 if unlike else 0


if __name__ == "__main__":
    sys.exit(main())
