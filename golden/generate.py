#!/usr/bin/env python3
"""Makes and checks the golden tensors of KV-CTS.

    generate.py                    adds a golden file for each layout of cases/layouts that has none
    generate.py --check [NAME...]  makes the content again and compares digests; exit status 1 where they differ
    generate.py --list             every layout x dtype: golden, missing, or why it cannot be
    generate.py --replace NAME     rewrites one file and prints which digests change
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kvgold import GoldenError  # noqa: E402
from kvgold.store import Store, difference  # noqa: E402
from kvgold import h5file  # noqa: E402


def selected(store, names):
    unknown = [n for n in names if n not in store.layouts and f"{n}.h5" not in store.manifest["files"]]
    if unknown:
        raise GoldenError(f"no layout '{unknown[0]}'; known: {' '.join(store.layouts)}")
    return names or sorted(store.layouts)


def add(store, names):
    status = 0
    for name in selected(store, names):
        if (store.golden / f"{name}.h5").exists() and f"{name}.h5" in store.manifest["files"] and not names:
            continue
        try:
            made = store.make(name)
            store.write(name, made)
            print(f"{name}.h5: {len(made.dtypes)} dtypes, {(store.golden / f'{name}.h5').stat().st_size} bytes")
        except GoldenError as error:
            print(f"generate.py: {error}", file=sys.stderr)
            status = 1
    return status


def replace(store, names):
    for name in selected(store, names):
        made = store.make(name)
        exists = (store.golden / f"{name}.h5").exists()
        before = store.digests(name) if exists else {}
        lines = difference(before, {p: h5file.digest(a) for p, a in made.arrays.items()})
        print(f"{name}.h5: " + (f"{len(lines)} data sets change" if lines else "content is the same"))
        print("".join(f"  {line}\n" for line in lines), end="")
        store.write(name, made, replace=True)
    return 0


def check(store, names, as_json):
    files = sorted({Path(f).stem for f in store.manifest["files"]} | {p.stem for p in store.golden.glob("*.h5")}) if not names else names
    selected(store, names)
    report = {"versions": h5file.versions(), "files": {}, "missing": []}
    for name in files:
        try:
            report["files"][name] = store.check(name)
        except (GoldenError, OSError, ValueError, KeyError) as error:
            report["files"][name] = [f"{name}.h5: {' '.join(str(error).split())}"]
    if not names:
        report["missing"] = [n for n in sorted(store.layouts) if n not in report["files"] and store.make(n).arrays]
    faults = sum(len(f) for f in report["files"].values())
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        for lines in report["files"].values():
            print("".join(f"{line}\n" for line in lines), end="")
        for name in report["missing"]:
            print(f"{name}: has no golden file; run generate.py")
        print(f"{len(report['files'])} files checked, {faults} faults, {len(report['missing'])} layouts without a file")
    return 1 if faults or report["missing"] else 0


def show(store, as_json):
    rows = []
    for name in sorted(store.layouts):
        made = store.make(name)
        have = store.manifest["files"].get(f"{name}.h5", {}).get("dtypes", [])
        rows += [(name, d, "golden" if d in have else "missing", "" if d in have else "run generate.py") for d in made.dtypes]
        rows += [(name, d, "not possible", reason) for d, reason in made.refused.items()]
    rows += [(name, "*", "unreadable", reason) for name, reason in store.unreadable.items()]
    if as_json:
        print(json.dumps([dict(zip(("layout", "dtype", "state", "reason"), row)) for row in rows], indent=1))
    else:
        print("".join("  ".join(word for word in row if word) + "\n" for row in rows), end="")
        count = {state: sum(r[2] == state for r in rows) for state in ("golden", "missing", "not possible", "unreadable")}
        print(", ".join(f"{n} {state}" for state, n in count.items()))
    return 0


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="layouts; default all")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="compare the files with content made now")
    action.add_argument("--list", action="store_true", help="say for every layout x dtype whether it is golden, and why not")
    action.add_argument("--replace", action="store_true", help="rewrite the named files, printing what changes")
    parser.add_argument("--json", action="store_true", help="machine-readable --check and --list")
    parser.add_argument("--golden", default=str(HERE), help="folder of plan.yaml, MANIFEST.json and the files")
    parser.add_argument("--cases", default=str(HERE.parent / "cases"), help="the catalogue")
    options = parser.parse_args(arguments)
    try:
        store = Store(options.golden, options.cases)
        if options.list:
            return show(store, options.json)
        if options.check:
            return check(store, options.names, options.json)
        if options.replace:
            if not options.names:
                parser.error("--replace needs the names of layouts")
            return replace(store, options.names)
        return add(store, options.names)
    except (GoldenError, OSError) as error:
        print(f"generate.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
