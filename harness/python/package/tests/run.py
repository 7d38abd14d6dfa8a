"""run.py [FILE.py...]: runs the package's tests, or those of the files, with the module of this build. Skipped, with the
reason, if it was not built."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ["KVCTS_BINARY_DIR"])


def main() -> int:
    package = BUILD / "python"
    if not list(package.glob("kvcts/_native*.so")):
        why = package / "missing.txt"
        print(
            "skipped: "
            + (why.read_text().strip() if why.exists() else f"{package}/kvcts/_native is not built (target kvcts_python)")
        )
        return 77
    try:
        import numpy  # noqa: F401
        import pytest  # noqa: F401
    except ImportError as e:
        print(f"skipped: {e.name} is not installed for {sys.executable} (./run_suite.sh install)")
        return 77
    os.chdir(HERE)  # -m pytest puts the current folder first: it must not be the package's sources, which have no module
    env = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    os.execve(
        sys.executable,
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-p",
            "no:cacheprovider",
            "-p",
            "kvcts.pytest_plugin",
            *([] if any(word.endswith(".py") for word in sys.argv[1:]) else [str(HERE), "--ignore=test_contract.py"]),
            *sys.argv[1:],
        ],
        env,
    )


if __name__ == "__main__":
    sys.exit(main())
