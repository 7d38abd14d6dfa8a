"""Pages are found and short: every page is in the index with one line, every link resolves, the README and the guides stay
within their length, and every page of results says which command its numbers come from."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kvtest import ROOT, finish

README_LINES = 120
GUIDE_LINES = {"write-a-case.md": 250, "describe-a-bug.md": 250}
GUIDE_WORDS = 15_750  # of all guides
INDEX = ROOT / "reports" / "README.md"
NOT_PAGES = {"README.md", "reports/README.md", "harness/case/catalogue/case_reference.md"}  # the last is a template


def pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def links(page: Path) -> list[str]:
    """Targets of links outside of code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def broken(page: Path) -> list[str]:
    out = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            out.append(f"{page.relative_to(ROOT)}: there is no {link}")
        elif fragment and target.suffix == ".md" and fragment not in anchors(target):
            out.append(f"{page.relative_to(ROOT)}: {target.relative_to(ROOT)} has no heading #{fragment}")
    return out


def main() -> None:
    every = pages()
    problems = [problem for page in every for problem in broken(page)]
    rows = [line for line in INDEX.read_text().splitlines() if line.startswith("| [")]
    indexed = [(INDEX.parent / re.findall(r"\]\(([^)]+)\)", row)[0]).resolve() for row in rows]
    wanted = {page for page in every if str(page.relative_to(ROOT)) not in NOT_PAGES}
    problems += [f"reports/README.md has no line for {page.relative_to(ROOT)}" for page in sorted(wanted - set(indexed))]
    problems += [f"reports/README.md has two lines for {page}" for page in set(indexed) if indexed.count(page) > 1]
    lines = len((ROOT / "README.md").read_text().splitlines())
    if lines > README_LINES:
        problems.append(f"README.md: {lines} lines, expected at most {README_LINES}")
    guides = sorted((ROOT / "reports" / "guide").glob("*.md"))
    words = sum(len(page.read_text().split()) for page in guides)
    if words > GUIDE_WORDS:
        problems.append(f"reports/guide: {words} words, expected at most {GUIDE_WORDS}")
    for name, most in GUIDE_LINES.items():
        if (found := len((ROOT / "reports" / "guide" / name).read_text().splitlines())) > most:
            problems.append(f"reports/guide/{name}: {found} lines, expected at most {most}")
    for page in (ROOT / "reports" / "results").glob("*.md"):
        if not re.match(r"<!-- (written by|results of) `\./run_suite\.sh [^`]+`", page.read_text()):
            problems.append(f"{page.relative_to(ROOT)}: its first line must say which command the results come from")
    assert not problems, "\n".join(problems)
    print(f"{len(every)} pages, README {lines} lines, {len(guides)} guides with {words:,} words")


if __name__ == "__main__":
    finish(main)
