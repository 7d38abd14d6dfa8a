"""Mutants of a small file match their descriptions."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import mutation  # noqa: E402

SOURCE = b"""#include <cstdio>
constexpr int twice = 2 * 2;
int f(int a, int b) {
  if (a < b && b != 0) return a + 1;
  throw 3 + 4;
}
"""


def mutants() -> None:
    try:
        from mutators import Mutator
    except ImportError as missing:
        print(f"mutants: skipped: {missing} (harness/lab/mutation/requirements.txt)")
        return
    found = Mutator("f.cpp", SOURCE, 1)
    what = {site.becomes for site in found.sites.values()}
    assert what == {
        "&& becomes ||",
        "< becomes <=",
        "!= becomes ==",
        "+ becomes -",
        "0 becomes 0 + 1",
        "1 becomes 1 + 1",
        "never true",
    }, what
    for number, site in found.sites.items():
        text = found.rendered({number})
        assert f"({number}" in text and text.count("kvcts::mutant::") == 1, (site, text)
    assert found.rendered(set()).endswith(SOURCE.decode())


if __name__ == "__main__":
    mutants()
