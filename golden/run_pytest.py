#!/usr/bin/env python3
"""Runs this folder's pytest for CTest; if a package is missing, exits with 77 (CTest: skipped) and the reason."""

import sys
from pathlib import Path

try:
    import h5py  # noqa: F401
    import ml_dtypes  # noqa: F401
    import numpy  # noqa: F401
    import pytest
    import yaml  # noqa: F401
except ImportError as missing:
    print(f"SKIPPED: {sys.executable} lacks a package ({missing}); install golden/requirements.txt and pytest")
    sys.exit(77)

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(Path(__file__).resolve().parent), *sys.argv[1:]]))
