"""Reads cases/layouts, cases/dtypes and golden/plan.yaml, and decides which layout x dtype at which geometry is golden."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from . import GoldenError, dtypes, memory, template
from .expr import evaluate

GEOMETRY_KEYS = ("layers", "blocks", "block_size", "heads", "head_dim", "v_head_dim", "kv")


@dataclass(frozen=True)
class Layout:
    """One file of cases/layouts."""

    name: str
    title: str
    template: str
    fixed: dict = field(default_factory=dict, hash=False)
    dtypes: tuple | None = None
    requires: tuple = ()
    tensors: dict = field(default_factory=dict, hash=False)
    document: dict = field(default_factory=dict, hash=False, repr=False)


def read_layout(doc):
    """One YAML document of cases/layouts."""
    requires = tuple(
        (r["that"], r.get("because", "")) if isinstance(r, dict) else (r, "") for r in doc.get("requires") or ()
    )
    allowed = tuple(doc["dtypes"]) if doc.get("dtypes") else None
    layout = Layout(
        doc["layout"],
        doc.get("title", ""),
        str(doc["template"]),
        doc.get("fixed") or {},
        allowed,
        requires,
        doc.get("tensors") or {},
        doc,
    )
    template.parse(layout.template)
    return layout


def load_layouts(folder):
    """Layouts by id, and for each unreadable document the reason."""
    good, bad = {}, {}
    for path in sorted(Path(folder).glob("*.yaml")):
        name = path.stem
        try:
            for doc in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                name = doc["layout"]
                good[name] = read_layout(doc)
        except (GoldenError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            bad[name] = f"{path.name}: " + " ".join(str(error).split())
    return good, bad


def load_schemes(folder):
    """Schemes by name, in the order of the files."""
    return {scheme.name: scheme for path in sorted(Path(folder).glob("*.yaml")) for scheme in dtypes.load_schemes(path)}


@dataclass(frozen=True)
class Plan:
    key: memory.Key
    geometries: tuple  # (condition or "", Geometry), in order of preference


def load_plan(path):
    doc = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    rows = []
    for row in doc["geometries"]:
        numbers = {k: row[k] for k in GEOMETRY_KEYS if k in row}
        rows.append(
            (
                row.get("for", ""),
                memory.Geometry(
                    name=row["geometry"],
                    tokens=row["tokens"],
                    table=tuple(row["table"]),
                    generation=doc["generation"],
                    **numbers,
                ),
            )
        )
    return Plan(memory.Key(seed=doc["seed"]), tuple(rows))


def unmet(layout, scheme, geometry):
    """The first condition of the layout that fails, or ''."""
    names = geometry.names(scheme)
    try:
        names["G"] = scheme.groups(geometry.head_dim)
        for condition, because in layout.requires:
            if not evaluate(condition, names):
                return f"requires {condition}" + (f" ({because})" if because else "")
    except GoldenError as error:
        return str(error)
    return ""


def place(layout, scheme, plan):
    """(geometry, cache) of the first geometry that fits. Raises GoldenError with the reason of the last one tried."""
    if layout.dtypes is not None and scheme.name not in layout.dtypes:
        raise GoldenError(f"the layout lists its dtypes: {' '.join(layout.dtypes)}")
    reason = "no geometry in the plan is for this dtype"
    first = ""
    for condition, geometry in plan.geometries:
        if condition and not evaluate(condition, {"bits": dtypes.bits(scheme.data), "group": scheme.group}):
            continue
        geometry = replace(geometry, **{k: v for k, v in layout.fixed.items() if k in GEOMETRY_KEYS}).within()
        reason = unmet(layout, scheme, geometry)
        if not reason:
            try:
                return geometry, memory.build(layout.template, geometry, scheme, plan.key)
            except GoldenError as error:
                reason = str(error)
        first = first or reason
    raise GoldenError(first or reason)
