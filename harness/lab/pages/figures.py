"""Floors of the suite's own figures: reports/figures.json, {"name": {"least": 10}} or {"most": 0}."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def read() -> dict[str, dict[str, float]]:
    return json.loads((ROOT / "reports" / "figures.json").read_text())


def beyond(floors: dict[str, dict[str, float]], made: dict[str, float]) -> list[str]:
    """One line per missed floor."""
    out = []
    for name, floor in floors.items():
        if name not in made:
            out.append(f"{name}: expected a figure, found none; ./run_suite.sh pages makes them")
        elif made[name] < floor.get("least", made[name]):
            out.append(f"{name}: expected at least {floor['least']}, found {made[name]}")
        elif made[name] > floor.get("most", made[name]):
            out.append(f"{name}: expected at most {floor['most']}, found {made[name]}")
    return out
