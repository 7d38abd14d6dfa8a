"""Mooncake's Python modules, from the engine package that ./run_suite.sh keeps."""

import importlib
import os
import sys
from pathlib import Path

import template


class Missing(Exception):
    """Something missing on this machine, and how to get it."""


def package_folder(name):
    """Where ./run_suite.sh puts engine packages, or the environment that a wheel of the suite was installed into
    (harness/engines/transport/packages.hpp)."""
    here = Path(__file__).resolve()
    root = Path(os.environ.get("KVCTS_ENGINE_PACKAGES") or here.parents[3] / ".venv" / "engines")
    if (root / name / "kvcts-pins").is_file():
        return root / name
    for suite in here.parents:  # <site-packages>/kvcts/_suite/share/kvcts/connectors
        site = suite.parent.parent
        if suite.name == "_suite" and (site / f"mooncake_transfer_engine_non_cuda-{name.split('-')[-1]}.dist-info").is_dir():
            return site
    raise Missing(f"engine package {name} is not installed in {root}: ./run_suite.sh install puts it there")


def load(module, options):
    """The folder of the package that the options name, and its module."""
    folder = package_folder(options.get("package", "mooncake-0.3.13.post1"))
    sys.path.insert(0, str(folder))
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise Missing(
            f"{module} of {folder} cannot be imported by Python {sys.version_info.major}.{sys.version_info.minor}: {error}"
        ) from None
    if template.np is None:
        raise Missing("NumPy is missing: pip install numpy")
    return folder, loaded
