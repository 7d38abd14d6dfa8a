#!/usr/bin/env python3
"""Random layouts, made by NumPy and by the C++: a differential test of template, map, tags and poison.

    fuzz_layouts.py FOLDER [--count N] [--seed S]   writes FOLDER/cases and FOLDER/golden (nothing else may be in FOLDER)
    KVCTS_GOLDEN_FOLDER=FOLDER/golden kvcts_golden_test --gtest_filter=Verify.Every*
"""

import argparse
import random
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402


def axes(rng, allowed):
    """The axes in random order; some split in two digits (the geometries have extents that 2 divides, but for H = 3, B = 5)."""
    out = []
    for axis in allowed:
        if axis in "NC" and rng.random() < 0.3:
            n = rng.choice(["2", "4", "x"] if axis == "C" else ["2", "4"])
            out += [f"{axis}/{n}", f"{axis}%{n}"]
        else:
            out.append(axis)
    rng.shuffle(out)
    return out


def leaf(rng, modes, component="", dtype=""):
    text = " ".join(modes)
    if component:
        text = f"{component} {text}" if rng.random() < 0.5 else f"{text} {component}"
    return f"{text} :{dtype}" if dtype else text


def pieces(rng, left):
    """Ways to fill the inside of braces with the axes of `left`."""
    kind = rng.choice(["flat", "kv", "range", "pad", "hi"])
    if kind == "kv" and "K" in left:
        rest = [a for a in left if a != "K"]
        return ["K=0 " + leaf(rng, axes(rng, rest)), "K=1 " + leaf(rng, axes(rng, rest))]
    if kind == "range" and "C" in left:
        rest = [a for a in left if a != "C"]
        own = rng.choice(["", "", "bf16", "e5m2"])
        order = axes(rng, rest + ["#"])
        low, high = (" ".join(order).replace("#", f"C={r}") for r in ("0..D/2", "D/2..D"))
        return [low, high + (f" :{own}" if own else "")]
    if kind == "pad":
        return [leaf(rng, axes(rng, left)), rng.choice(["pad 2", "pad 16*N", "N pad 1" if "N" in left else "pad 8"])]
    if kind == "hi":
        return [leaf(rng, axes(rng, left), dtype="int4.hi"), "pad 4"]
    return [leaf(rng, axes(rng, left)), leaf(rng, axes(rng, left), "scale")] if rng.random() < 0.5 else [leaf(rng, axes(rng, left))]


def region(rng):
    left = list("LKBNHC")
    lists = [a for a in ("L", "K", "H") if rng.random() < (0.7 if a == "L" else 0.2)]
    rng.shuffle(lists)
    left = [a for a in left if a not in lists]
    head = "".join(f"{a} x " for a in lists)
    if rng.random() < 0.4:
        return head + " ".join(axes(rng, left))
    outer = [a for a in left if rng.random() < 0.4 and a != "C"]
    rng.shuffle(outer)
    inside = pieces(rng, [a for a in left if a not in outer])
    return head + " ".join(outer) + " { " + " ; ".join(inside) + " }"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtypes", type=Path, default=HERE.parent / "cases" / "dtypes")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    (options.folder / "cases" / "layouts").mkdir(parents=True)
    (options.folder / "golden").mkdir()
    shutil.copytree(options.dtypes, options.folder / "cases" / "dtypes")
    shutil.copy(HERE / "plan.yaml", options.folder / "golden")
    for i in range(options.count):
        text = region(rng)
        (options.folder / "cases" / "layouts" / f"f{i}.yaml").write_text(f'layout: f{i}\ntitle: fuzz\ntemplate: "{text}"\n')
    return generate.main(["--golden", str(options.folder / "golden"), "--cases", str(options.folder / "cases")])


if __name__ == "__main__":
    sys.exit(main())
