"""python -m kvcts describe FILE.npy [--heads N ...]: what a saved tensor can be. The file is mapped, not read."""

from __future__ import annotations

import argparse
import sys

from . import LayoutError, describe


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kvcts", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("describe", help="which layouts of the catalogue have the shape and strides of a tensor")
    verb.add_argument("file", help="a .npy file")
    for fact in ("layers", "blocks", "block-size", "heads", "head-dim"):
        verb.add_argument(f"--{fact}", type=int)
    args = vars(parser.parse_args())
    args.pop("verb")
    try:
        import numpy as np

        print(describe(np.load(args.pop("file"), mmap_mode="r"), **args))
    except (LayoutError, OSError, ValueError) as e:
        print(f"python -m kvcts: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
