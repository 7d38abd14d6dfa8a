#!/usr/bin/env python3
"""Random layouts, made by both NumPy and the C++: a differential test of template, map, tags and poison.

    fuzz_layouts.py [--count N] [--seed S] [--keep FOLDER] [--test kvcts_test_case]

Makes N layouts with the plan's geometries and the repository's dtypes; the test program compares each tensor with its
own, bit for bit."""

import argparse
import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

try:
    import generate  # noqa: E402
except ImportError as missing:
    print(f"SKIPPED: {sys.executable} lacks a package ({missing}); install golden/requirements.txt")
    sys.exit(77)


def axes(rng, allowed):
    """The axes in random order; some split in two digits (the geometries have extents that 2 divides, but for H = 3, B
    = 5)."""
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
    return (
        [leaf(rng, axes(rng, left)), leaf(rng, axes(rng, left), "scale")]
        if rng.random() < 0.5
        else [leaf(rng, axes(rng, left))]
    )


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


def make(folder, rng, count):
    """A catalogue of random layouts and its golden files. Returns how many layouts some dtype fits."""
    (folder / "cases" / "layouts").mkdir(parents=True)
    (folder / "golden").mkdir()
    shutil.copytree(HERE.parent / "cases" / "dtypes", folder / "cases" / "dtypes")
    shutil.copy(HERE / "plan.yaml", folder / "golden")
    for i in range(count):
        text = region(rng)
        (folder / "cases" / "layouts" / f"f{i}.yaml").write_text(f'layout: f{i}\ntitle: fuzz\ntemplate: "{text}"\n')
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        generate.main(["--golden", str(folder / "golden"), "--cases", str(folder / "cases")])
    return len(list((folder / "golden").glob("*.h5")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a new folder for what is made; default: a temporary one")
    parser.add_argument("--test", help="kvcts_test_case; default: $KVCTS_BINARY_DIR/bin/kvcts_test_case")
    options = parser.parse_args()
    program = options.test or os.path.join(os.environ["KVCTS_BINARY_DIR"], "bin", "kvcts_test_case")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch) / "fuzz"
        made = make(folder, random.Random(options.seed), options.count)
        print(f"{options.count} random layouts, seed {options.seed}: {made} files")
        if made < options.count // 2:
            print("too few of them hold any dtype; is the generator broken?")
            return 1
        environment = dict(os.environ, KVCTS_GOLDEN_FOLDER=str(folder / "golden"))
        return subprocess.run([program, "--gtest_filter=Verify.ChecksEveryTensor*"], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
