"""reports/results/connectors.md: which connectors of released projects run here and in which caches, what is known to fail,
and what does not run, from cases/registry.yaml and the catalogue. Nothing runs."""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from pathlib import Path

from tables import cell, documents, table

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import registry  # noqa: E402
from kvtest import ROOT, kvcts  # noqa: E402

FEW = 7  # layouts that are named, not counted
TEXT = """# Connectors

Connectors, transfers and stores of released projects that this suite runs, and those that it does not. Made from
[`cases/registry.yaml`](../../cases/registry.yaml) and the catalogue, without a run: layouts and dtypes are those of the
suites' cases. Tests `testing.registry_vllm` and `testing.registry_sglang` compare that file with the installed projects
and fail on a new name.

## Hosted

*Executed*: the project's own classes on CPU tensors, over loopback or files; every byte of both sides is compared. What
stands in for the engine is on the pages of [vLLM](vllm.md) and [LMCache](lmcache.md), and in the docstrings of
`harness/connector/programs/*_host.py`. Rows without a registered name are LMCache's transfers and other versions of vLLM.

"""
DEFECTS = """
*Known defects* counts waivers that match cases of the row, with links to where each is described; *open* ones are not
reported yet. Each waiver has a reason, an owner and a last day. A row of two versions has the producer's first.

## Not hosted

*Never*: it cannot run on a CPU, or moves no cache. *Later*: something is missing here. The last column quotes upstream; the
tests fail when the words are gone.

"""


def cases() -> list[dict]:
    """Cases of all suites that run a real connector."""
    suites = [file.stem for file in sorted((ROOT / "cases" / "suites").glob("*.yaml")) if "real-" in file.read_text()]
    return listed(*[flag for suite in suites for flag in ("--suite", suite)])


def listed(*flags: str) -> list[dict]:
    done = kvcts("list", *flags, "--json")
    if done.status not in (0, 4):
        raise RuntimeError(f"kvcts list {' '.join(flags)} ended with {done.status}: {done.err}")
    return json.loads(done.out)["cases"] if done.status == 0 else []


def axes(case: dict) -> dict:
    return case["facts"]["axes"]


def defects(every: list[dict]) -> dict[str, list[dict]]:
    """Waivers by connector, those that match a case of it."""
    suites = [flag for suite in sorted({case["suite"] for case in every}) for flag in ("--suite", suite)]
    found: dict[str, list[dict]] = {}
    for waiver in documents("waivers"):
        match = waiver["match"]
        some = listed(*suites, "--where", match["where"]) if "where" in match else every
        hit = [case for case in some if fnmatch.fnmatchcase(case["id"], match.get("id", "*"))]
        for name in sorted({axes(case)["connector"] for case in hit if "connector" in axes(case)}):
            found.setdefault(name, []).append(waiver)
    return found


def told(waivers: list[dict]) -> str:
    pages = sorted({waiver["link"].rpartition("/")[2] for waiver in waivers if waiver["link"].startswith("reports/")})
    open_ones = sum(waiver["link"].startswith("not reported") for waiver in waivers)
    reported = sum(waiver["link"].startswith("https://") for waiver in waivers)
    words = [f"[{page.removesuffix('.md')}]({page})" for page in pages]
    words += [f"{count} {word}" for count, word in ((reported, "reported"), (open_ones, "open")) if count]
    return f"{len(waivers)} ({', '.join(words)})" if waivers else "none"


def names_of(entry: str, registries: list[dict]) -> str:
    names = [name for one in registries for name, what in one["names"].items() if entry in what.get("hosted", [])]
    return ", ".join(f"`{name}`" for name in names)


def cached(some: list[dict]) -> list[str]:
    """Layouts and dtypes of a connector's cases."""
    layouts = sorted({axes(case)[side] for case in some for side in ("producer", "consumer") if side in axes(case)})
    dtypes = sorted({axes(case)["dtype"] for case in some if "dtype" in axes(case)})
    return [", ".join(layouts) if len(layouts) <= FEW else f"{len(layouts)} layouts", ", ".join(dtypes)]


def page(figures: dict) -> str:
    registries, every = registry.read(), cases()
    failing = defects(every)
    rows = []
    for name, entry in registry.catalogue().items():
        some = [case for case in every if axes(case).get("connector") == name]
        if not name.startswith("real-") or not some:
            continue
        version = " to ".join(f"{one['project']} {one['version']}" for one in entry["source"])
        rows.append(
            [
                f"`{name}`",
                names_of(name, registries),
                re.sub(r" to \S+ ", " to ", version),
                "executed on a CPU" if all(one["how"] == "ran" for one in entry["source"]) else "restated from its code",
                *cached(some),
                told(failing.get(name, [])),
            ]
        )
    head = ["entry", "names that it drives", "version", "evidence", "layouts", "dtypes", "known defects"]
    missing = [
        [
            f"`{name}`",
            one["title"],
            registry.kind(entry).replace("cannot", "never"),
            entry[registry.kind(entry)],
            quoted(entry),
        ]
        for one in registries
        for name, entry in one["names"].items()
        if registry.kind(entry) != "hosted"
    ]
    figures |= {"connectors.hosted": len(rows), "connectors.not_hosted": len(missing)}
    return TEXT + table(head, rows) + DEFECTS + table(["name", "of", "when", "why", "upstream's words"], missing)


def quoted(entry: dict) -> str:
    file, line, text = registry.SOURCE.fullmatch(entry["source"]).groups()
    return cell(f"`{text.replace('`', chr(39))}` ({Path(file).name}:{line})")
