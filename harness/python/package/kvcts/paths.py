"""Where the suite lies: in the wheel beside these files, or the build folder whose python/kvcts they are."""

from __future__ import annotations

import os
from pathlib import Path

from ._native import LayoutError


def prefix() -> Path:
    """The folder with bin/, include/, lib/ and share/kvcts/."""
    here = Path(os.path.abspath(__file__)).parent  # a link in a build folder
    installed = here / "_suite"
    return installed if installed.is_dir() else here.parents[1]


def cases() -> Path:
    """The catalogue: $KVCTS_CASES, else the suite's. Raises LayoutError where there is none."""
    named = os.environ.get("KVCTS_CASES")
    folder = Path(named) if named else prefix() / "share" / "kvcts" / "cases"
    if not (folder / "layouts").is_dir():
        raise LayoutError(f"expected layouts/ in {folder}, found none; set KVCTS_CASES to a folder of case data")
    return folder


def get_include() -> str:
    """The folder for -I: kvcts_transport.h and kvcts_memory.h, of which a plug-in in C is made."""
    return str(prefix() / "include" / "kvcts")
