"""A suite as a CTest entry: suite_test.py SUITE. Runs it as a user would; its exit status is the test's."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from kvtest import BUILD, kvcts, need_program


def main() -> int:
    need_program()
    suite = sys.argv[1]
    out = BUILD / "suites" / suite
    shutil.rmtree(out, ignore_errors=True)
    ended = kvcts("run", "--suite", suite, "-j", str(os.cpu_count() or 1), "--out", str(out), timeout=1700)
    print(ended.out[-6000:])
    print(ended.err[-2000:])
    return ended.status


if __name__ == "__main__":
    sys.exit(main())
