"""The program kvcts, as `kvcts` and as `python -m kvcts`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .paths import prefix


def main() -> None:
    """Becomes the program, whose Python connectors run with this interpreter and its packages."""
    os.environ["KVCTS_ENTRY_PYTHON"] = sys.executable
    program = prefix() / "bin" / "kvcts"
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(
            f"kvcts: expected the program in {program}: {error.strerror}; install the wheel anew, or ./run_suite.sh build"
        )


if __name__ == "__main__":
    main()
