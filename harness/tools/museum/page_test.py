"""reports/museum.md is what `kvcts museum --page` prints: all of the museum runs, and every entry ends as the page says. What is not caught or
not named has a waiver, and nothing else has."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, kvcts, need_program  # noqa: E402


def unwaived(page: str) -> set[str]:
    """Entries that are misnamed or missed without a waiver, or have a waiver without need."""
    lacking = set(re.findall(r"^\| (M\d+)\b.*\*\*(?:misnamed|missed)\*\*", page, re.M))
    waivers = "".join(path.read_text() for path in sorted((ROOT / "cases" / "waivers").glob("*.yaml")))
    return lacking ^ {"M" + number for number in re.findall(r"\bid: museum/m(\d+)-", waivers)}


def main() -> int:
    need_program()
    ended = kvcts("museum", "--page", timeout=850)
    page = (ROOT / "reports" / "museum.md").read_text()
    met = "\ntargets    met\n" in page
    if ended.status != (0 if met else 1) or ended.err:
        print(f"kvcts museum ended with {ended.status}, the page says that targets are {'met' if met else 'missed'}: {ended.err}")
        return 1
    if ended.out != page:
        print("\n".join(difflib.unified_diff(page.splitlines(), ended.out.splitlines(), "reports/museum.md", "kvcts museum --page", lineterm="", n=0)))
        print("write it again: build/bin/kvcts museum --page > reports/museum.md")
        return 1
    if odd := unwaived(page):
        print(f"waivers and what the page calls misnamed or missed do not agree about {', '.join(sorted(odd))}")
        return 1
    print("\n".join(line for line in page.splitlines() if line.startswith(("expressed", "caught", "named", "controls", "targets"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
