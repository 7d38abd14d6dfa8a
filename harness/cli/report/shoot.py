"""Makes the pictures of a report that the documents show: shoot.py INDEX_HTML OUT_FOLDER. Opens the first failure."""

from __future__ import annotations

import sys
from pathlib import Path

from browser import Browser

OPEN_FIRST = "document.querySelector('.cause .case-block').open = true; new Promise(done => setTimeout(done, 200))"


def main(page_file: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        for width, height in ((1400, 2080), (390, 2300)):
            page = browser.open(page_file, width=width)
            page.evaluate(OPEN_FIRST)
            page.screenshot(out / f"report-{width}.png", 0, height)
            page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
