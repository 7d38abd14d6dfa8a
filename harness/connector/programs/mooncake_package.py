"""Mooncake's Python modules, from the engine package that ./run_suite.sh keeps."""

import importlib
import os
import sys
from pathlib import Path

import template


class Missing(Exception):
    """Something missing on this machine, and how to get it."""


def package_folder(name):
    """Where ./run_suite.sh puts engine packages (harness/engines/transport/packages.hpp)."""
    root = os.environ.get("KVCTS_ENGINE_PACKAGES") or Path(__file__).resolve().parents[3] / ".venv" / "engines"
    folder = Path(root) / name
    if not (folder / "kvcts-pins").is_file():
        raise Missing(f"engine package {name} is not installed in {root}: ./run_suite.sh install puts it there")
    return folder


def load(module, options):
    """The folder of the package that the options name, and its module."""
    folder = package_folder(options.get("package", "mooncake-0.3.13.post1"))
    sys.path.insert(0, str(folder))
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise Missing(
            f"{folder.name} cannot be imported by Python {sys.version_info.major}.{sys.version_info.minor}: {error}"
        ) from None
    if template.np is None:
        raise Missing("NumPy is missing: pip install numpy")
    return folder, loaded
