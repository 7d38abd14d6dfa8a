"""Mutants of a small file are what they say, and reports/mutation.md agrees with survivors.txt: every survivor is argued, every argument is of one."""

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
    assert what == {"&& becomes ||", "< becomes <=", "!= becomes ==", "+ becomes -", "0 becomes 0 + 1", "1 becomes 1 + 1", "never true"}, what
    for number, site in found.sites.items():
        text = found.rendered({number})
        assert f"({number}" in text and text.count("kvcts::mutant::") == 1, (site, text)
    assert found.rendered(set()).endswith(SOURCE.decode())


def page() -> None:
    text = (HERE.parents[2] / "reports" / "mutation.md").read_text()
    survivors = [re.fullmatch(r"- `([^`]+)`, `(.+)`: (.+?)(?: \(no test reaches it\))?\. (.+)", line) for line in text.split("## Survivors\n")[1].splitlines() if line]
    assert survivors and all(survivors), [line for line in text.split("## Survivors\n")[1].splitlines() if line][:3]
    argued = mutation.arguments()
    keys = [f"{m[1]}: {m[2]} -> {m[3]}" for m in survivors]
    assert not [k for k in keys if k not in argued], "not argued: " + ", ".join(k for k in keys if k not in argued)
    assert not [k for k in argued if k not in keys], "argued, but killed: " + ", ".join(k for k in argued if k not in keys)
    for m, key in zip(survivors, keys):
        assert m[4] == argued[key], key
    total, killed = int(re.search(r"^mutants +(\d+)", text, re.M)[1]), int(re.search(r"^killed +(\d+)", text, re.M)[1])
    assert total == killed + len(survivors) and total >= 100, (total, killed, len(survivors))
    print(f"{killed} of {total} mutants killed, {len(survivors)} argued")


if __name__ == "__main__":
    mutants()
    page()
