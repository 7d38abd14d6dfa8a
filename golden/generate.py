#!/usr/bin/env python3
"""Makes and checks the golden tensors of KV-CTS.

generate.py                    adds a golden file for each layout of cases/layouts that has none
generate.py --check [NAME...]  makes the content again and compares digests; exit status 1 if they differ
generate.py --list             every layout x dtype: golden, missing, or why it cannot be
generate.py --replace NAME     makes golden layouts again and prints which digests change
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
    known = set(store.layouts) | {n for e in store.manifest["files"].values() for n in e["layouts"]}
    for name in names:
        if name not in known:
            raise GoldenError(f"no layout '{name}'; known: {' '.join(sorted(known))}")
    return names or sorted(store.layouts)


def add(store, names):
    status = 0
    for name in selected(store, names):
        file = store.file_of(name)
        if file and (store.golden / file).exists() and not names:
            continue
        try:
            made = store.make(name)
            file = store.add(name, made)
            size = f"{(store.golden / file).stat().st_size} bytes" if file == f"{name}.h5" else f"the same as {file}"
            print(f"{name}: {len(made.dtypes)} dtypes, {size}")
        except GoldenError as error:
            print(f"generate.py: {error}", file=sys.stderr)
            status = 1
    return status


def replace(store, names):
    made = {name: store.make(name) for name in selected(store, names)}
    for name, new in made.items():
        file = store.file_of(name)
        before = store.digests(file) if file and (store.golden / file).exists() else {}
        lines = difference(before, {p: h5file.digest(a) for p, a in new.arrays.items()})
        print(f"{name}: " + (f"{len(lines)} data sets change" if lines else "content is the same"))
        print("".join(f"  {line}\n" for line in lines), end="")
        if not new.arrays:
            raise GoldenError(f"{name}: no dtype of the catalogue fits at any geometry of plan.yaml; --list says why")
    store.remove(names)
    for name, new in made.items():
        print(f"{name}: now in {store.add(name, new)}")
    return 0


def check(store, names, as_json):
    selected(store, names)
    files = {store.file_of(n) or f"{n}.h5" for n in names} or set(store.manifest["files"]) | {
        p.name for p in store.golden.glob("*.h5")
    }
    report = {"versions": h5file.versions(), "files": {}, "missing": []}
    for file in sorted(files):
        try:
            report["files"][file] = store.check(file)
        except (GoldenError, OSError, ValueError, KeyError) as error:
            report["files"][file] = [f"{file}: {' '.join(str(error).split())}"]
    if not names:
        report["missing"] = [n for n in sorted(store.layouts) if not store.file_of(n) and store.make(n).arrays]
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
        have = store.manifest["files"].get(store.file_of(name), {}).get("dtypes", [])
        rows += [
            (name, d, "golden" if d in have else "missing", "" if d in have else "run generate.py") for d in made.dtypes
        ]
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
    action.add_argument("--replace", action="store_true", help="make the named layouts again, printing what changes")
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
