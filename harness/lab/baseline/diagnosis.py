"""What the diagnosis says of every known fault, as one file, to compare two states of the code by it.

    diagnosis.py OUT.json [--cases YAML]... [--since OLD.json]

Suites museum, field, faults and seeds, the injected faults over smoke, and cases of files. Each id has its outcome, class,
whether that is sure, all causes, and their words. With --since: what differs, one line each, and a status of 1 where more
than words does. Takes about 1 minute on two cores."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KVCTS = Path(os.environ.get("KVCTS_BINARY_DIR", ROOT / "build")) / "bin" / "kvcts"
SUITES = ("museum", "field", "faults", "seeds")
JUDGED = ("outcome", "class", "sure", "causes")  # words may change


def of_result(result: dict) -> dict:
    diagnosis = result.get("diagnosis") or {}
    return {
        "outcome": result["outcome"],
        "class": diagnosis.get("fault_class", ""),
        "sure": diagnosis.get("sure", False),
        "causes": [cause["class"] for cause in diagnosis.get("causes", [])],
        "words": diagnosis.get("text", ""),
    }


def of_injected(fault: dict) -> dict:
    return {
        "outcome": "FAIL" if fault["caught"] else "PASS",
        "class": fault.get("diagnosed", ""),
        "sure": fault.get("sure", False),
        "causes": [],
        "words": fault.get("diagnosis", ""),
    }


def run(selection: list[str]) -> dict[str, dict]:
    with tempfile.TemporaryDirectory(prefix="kvcts-diagnosis-") as folder:
        out = Path(folder) / "run"
        words = [KVCTS, "run", *selection, "--jobs", "2", "--out", out]
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if not (out / "results.json").exists():  # a file that cannot be read has an answer, too
            return {"": {"outcome": "refused", "class": "", "sure": False, "causes": [], "words": done.stderr.strip()}}
        return {result["id"]: of_result(result) for result in json.loads((out / "results.json").read_text())["results"]}


def made(files: list[str]) -> dict[str, dict]:
    said = run([word for suite in SUITES for word in ("--suite", suite)])
    for file in files:
        said |= {f"{Path(file).stem}: {name}": one for name, one in run(["--file", file]).items()}
    shown = subprocess.run([KVCTS, "inject", "--suite", "smoke", "--json"], capture_output=True, text=True)
    return said | {f"injected: {one['saboteur']}": of_injected(one) for one in json.loads(shown.stdout)["saboteurs"]}


def differences(before: dict[str, dict], now: dict[str, dict]) -> tuple[list[str], bool]:
    """A line for each id that differs; whether any does by more than its words."""
    lines, judged = [], False
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if old is None or new is None:
            lines.append(f"{name}: {'new' if old is None else 'gone'}")
            judged = True
            continue
        kinds = [key for key in old if old[key] != new[key]]
        judged = judged or any(key in JUDGED for key in kinds)
        lines.append(f"{name}: " + "; ".join(f"{key} {old[key]!r} -> {new[key]!r}" for key in kinds))
    return lines, judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--cases", action="append", default=[])
    parser.add_argument("--since")
    options = parser.parse_args()
    said = made(options.cases)
    Path(options.out).write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")
    wrong = [one for one in said.values() if one["outcome"] == "FAIL"]
    sure = sum(one["sure"] for one in wrong)
    print(f"{len(said)} faults, {len(wrong)} FAIL, {sum(bool(one['class']) for one in wrong)} with a class, {sure} sure")
    if options.since:
        lines, judged = differences(json.loads(Path(options.since).read_text()), said)
        print("\n".join(lines) or "nothing differs")
        sys.exit(judged)


if __name__ == "__main__":
    main()
