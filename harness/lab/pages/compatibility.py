"""reports/results/compatibility.md, from results of runs: suite compatibility, which it runs, and what the real
connectors did.

    compatibility.py [--open RUN]... [--real RUN]...

--open: runs of suite open-cells, which needs vLLM. If a case ran twice both results count, so one that passes only
sometimes is no PASS. --real: runs of suites vllm and lmcache. Without such a run its sections come from the
committed page. Prints the page."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import tables as markup

from kvtest import ROOT, kvcts, need_program

PAGE = ROOT / "reports" / "results" / "compatibility.md"
LEGEND = [  # the first five are those of vLLM's own table
    ("✅", "every byte arrives"),
    ("🟠", "partial: every byte arrives with some of the sizes tried; a note says what happens with the others"),
    ("❌", "not supported, and not mistaken for success: refused or excluded before any byte moves, or never ending"),
    ("❔", "unknown: nothing ran"),
    ("🚧", "known to fail, with a waiver that has a last day"),
    (
        "⚠️",
        "silently wrong with all or some of the sizes tried: no error, and what arrives is not what was sent. vLLM's "
        "legend has no sign for it",
    ),
]
EVIDENCE = {"executed": "e", "compiled": "c", "modelled": "m"}
COLUMNS = ["basic-pd", "spec-decode", "hetero-tp", "cross-layer-blocks", "swa", "host-buffer", "hetero-block-size"]
NOT_RUN = {
    ("multimodal", "host-buffer"): "the copy between a device and its host buffer needs a device",
    ("hybrid-ssm", "spec-decode"): "the host drives attention caches: no state of a Mamba layer",
}


@dataclass
class Cell:
    """The outcomes of the cases in one place of a table."""

    results: list[dict] = field(default_factory=list)

    def sign(self) -> str:
        ended = {kind(result) for result in self.results}
        for one in ("⚠️", "🚧"):
            if one in ended:
                return one
        known = ended - {"❔"}
        return "❔" if not known else known.pop() if len(known) == 1 else "🟠"

    def evidence(self) -> str:
        return "".join(sorted({EVIDENCE[result["evidence"]] for result in self.results if result["ran"]}))


def kind(result: dict) -> str:
    if result["verdict"] == "XFAIL":
        return "🚧"
    if result["outcome"] == "PASS":
        return "✅"
    if result["outcome"] in ("REFUSED", "UNSUPPORTED", "HANG", "CRASH"):
        return "❌"
    if result["outcome"] in ("SKIPPED", "NOT_RUN"):
        return "❔"
    # An exception from the connector is not a clean refusal, but it is reported, and before any byte moved.
    return "❌" if result["raised"] else "⚠️"


def short(result: dict) -> dict:
    """The parts of a result that the pages need."""
    raised = result["outcome"] == "FAIL" and result.get("phase") != "compare" and not result.get("wrong_bytes")
    return {
        "id": result["id"],
        "outcome": result["outcome"],
        "verdict": result["verdict"],
        "evidence": result["evidence"],
        "raised": raised,
        "ran": bool(result["phases"]),
        "why": why(result),
        "axes": result["facts"].get("axes", {}),
    }


def why(result: dict) -> str:
    """A result's message without the numbers that are specific to one of many."""
    text = re.sub(
        r"\b[0-9a-f]{64}\b", "...", re.sub(r", after [\d.]+ s;", ";", result["message"].removesuffix(" (at connector)"))
    )
    if result["outcome"] == "FAIL" and "; " in text and "wrong bytes" in text:
        said = result.get("diagnosis") or {}
        name = said.get("fault_class") if said.get("exact") else ""
        text = (f"{name}: " if name else "wrong bytes, ") + (text.split("; ", 1)[1] if name else "unexplained")
        text = re.sub(r": explains 100 % of .*", "", text)
    text = re.sub(r" after \d+ ms \(deadline \d+ ms\)|all \d+ (?=bytes)", "", text)
    return re.sub(
        r"descriptor \d+: the local range of \d+ bytes at offset \d+ is outside of its region of \d+ bytes",
        "a descriptor is outside of its region",
        text,
    )


class Notes:
    """Numbered remarks of one table, each once, with the first case that it was seen in."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[int, str]] = {}

    def number(self, result: dict) -> int:
        text = f"{result['outcome']}: {result['why']}"
        return self.seen.setdefault(text, (len(self.seen) + 1, result["id"]))[0]


@dataclass
class Table:
    title: str
    lead: str
    head: list[str]
    rows: list[tuple[list[str], list[str]]] = field(default_factory=list)  # names, cells
    notes: Notes = field(default_factory=Notes)

    def words(self, cell: Cell, prefix: str = "") -> str:
        marks = [self.notes.number(result) for result in cell.results if kind(result) != "✅"]
        marks = "".join(f"[{n}]" for n in dict.fromkeys(marks))
        return f"{cell.sign()}{marks} {cell.evidence()}{prefix}".strip()


def documents(folder: str) -> dict[str, dict]:
    """By the name of what they describe."""
    return {one.get("backend") or one.get("connector") or one.get("layout"): one for one in markup.documents(folder)}


def over_archs(table: Table, cells: dict[str, Cell], archs: list[str]) -> str:
    """Archs with the same end are one entry; without names if all are the same."""
    alike: dict[str, list[str]] = {}
    for arch in archs:
        alike.setdefault(table.words(cells[arch]) if arch in cells else "❔", []).append(arch)
    return "; ".join(words if len(alike) == 1 else f"{words} {' '.join(names)}" for words, names in alike.items())


def named(axes: dict, side: str) -> str:
    """A cache of K and V is a different one when it holds latents."""
    latent = axes["geometry"].startswith("mla-") and "mla" not in axes[side]
    return axes[side] + (" (latents)" if latent else "")


def matrix_tables(results: list[dict]) -> list[Table]:
    """One table per connector: pairs of caches by dtype, archs inside the cells."""
    titles = documents("connectors")
    found: dict[str, dict] = {}
    archs, dtypes = [], []
    for result in results:
        axes = result["axes"]
        pair = named(axes, "producer"), named(axes, "consumer")
        cell = (
            found.setdefault(axes["connector"], {})
            .setdefault(pair, {})
            .setdefault(axes["dtype"], {})
            .setdefault(axes["arch"], Cell())
        )
        cell.results.append(result)
        archs += [axes["arch"]] if axes["arch"] not in archs else []
        dtypes += [axes["dtype"]] if axes["dtype"] not in dtypes else []
    tables = []
    for connector, pairs in found.items():
        table = Table(connector, titles[connector]["title"], ["producer", "consumer", *dtypes])
        for (producer, consumer), by_dtype in pairs.items():
            table.rows.append(
                ([producer, consumer], [over_archs(table, by_dtype.get(dtype, {}), archs) for dtype in dtypes])
            )
        tables.append(table)
    return tables


def open_table(kept: dict) -> Table:
    """Cells that vLLM's table leaves open, from the behaviour of its own connector."""
    table = Table("Cells that vLLM leaves open", "", ["model type", *COLUMNS])
    for row in ("multimodal", "hybrid-ssm"):
        cells = []
        for column in COLUMNS:
            place = f"open-cells/{row}/{column}"
            cell = Cell([result for result in kept["results"] if result["id"].split("#")[0] == place])
            if row == "hybrid-ssm" and (row, column) not in NOT_RUN:
                cells.append("")  # vLLM answers it
            else:
                cells.append(table.words(cell) if cell.results else "❔")
        table.rows.append(([row], cells))
    return table


def backend_lines(results: list[dict]) -> list[str]:
    known = documents("backends") | documents("layouts")
    names = list(dict.fromkeys(result["axes"][side] for result in results for side in ("producer", "consumer")))
    lines = []
    for name in names:
        one = known[name]
        versions = f"{one.get('system', '')} {one.get('versions', '')}".strip() or ", ".join(
            dict.fromkeys(f"{s['project']} {s['version']}" for s in one["source"])
        )
        dtypes = ", ".join(one.get("dtypes", [])) or "any"
        lines.append((name, one["title"], versions, dtypes, one.get("min_arch") or ", ".join(one.get("archs", [])) or "any"))
    return lines


LEAD = (
    "Which cache survives which connector, by dtype and architecture. Made from a run of suite `compatibility` "
    "({count} cases); every byte of both sides was compared. "
    "`vllm-nixl-0.33` and `vllm-mooncake-0.33` are models of the code of vLLM's connectors, with 7 and with 2 blocks "
    "in the pool. The tables from `real-lmcache` on show what the real code did on CPU tensors, in recorded runs of "
    "suites `vllm` and `lmcache` ([vLLM](vllm.md), [LMCache](lmcache.md)). Latents (MLA) have their own rows. "
    "*Again: Resource temporarily unavailable* is NixlConnector's limit of 5 s for a handshake on a crowded machine; "
    "why it once never ended is unknown. "
    "`kvcts check` answers the same for any pair of the catalogue ([check a pair](../guide/check.md))."
)
SIGNS = (
    "A letter after the sign is the evidence: e executed on that architecture, c compiled for it, m modelled on "
    "the CPU; none: excluded without a run. [n] is a note below the table."
)


def open_lead(kept: dict) -> list[str]:
    return [
        f"vLLM's page on its NixlConnector (docs/features/nixl_connector_compatibility.md) has ❔ in the row "
        f"Multimodal, and in one cell of Hybrid SSM. What can run without a GPU is answered here by "
        f"{kept['connector']} itself "
        f"(suite `open-cells`, on CPU tensors): a cache with the numbers of a multimodal model's decoder, 4 KV heads "
        f"of 128. The question is what a connector sees: tensors, groups, ranks and blocks. "
        "Images, their encoder and its cache are no part of it, and no model runs. "
        "Where a case ran more than once and ended in two ways, both are shown: the machine was crowded (a load of 15 "
        "to 20 on two cores), and time-outs struck.",
        *(f"{row}, {column} stays ❔: {reason}." for (row, column), reason in NOT_RUN.items()),
    ]


def outcomes(kept: dict) -> list[tuple[str, str]]:
    """(case, its outcomes in all runs)."""
    found: dict[str, list[str]] = {}
    for result in kept["results"]:
        found.setdefault(result["id"], []).append(f"{kind(result)} {result['outcome']}")
    return [
        (
            case,
            ", ".join(
                f"{words} {ended.count(words)} of {len(ended)}" if len(ended) > 1 else words
                for words in dict.fromkeys(ended)
            ),
        )
        for case, ended in found.items()
    ]


def repro(case: str) -> str:
    return f"kvcts repro '{case}'"


def markdown(tables: list[Table], backends, count: int, kept: dict | None) -> str:
    def grid(head, rows):
        return markup.table(head, ([markup.cell(one) for one in row] for row in rows)).splitlines()

    out = ["# Compatibility", "", LEAD.format(count=f"{count:,}"), ""]
    out += [f"- {sign} {words}" for sign, words in LEGEND] + [
        "",
        SIGNS,
        "",
        "## Caches",
        "",
        *grid(["cache", "what it is", "versions", "dtypes", "archs"], backends),
    ]
    for table in tables:
        out += ["", f"## {table.title}", ""]
        out += [line for part in (open_lead(kept) if not table.lead else [table.lead + "."]) for line in (part, "")]
        out += grid([markup.cell(name) for name in table.head], (names + cells for names, cells in table.rows))
        if not table.lead:
            out += ["", "Each cell is these cases:", ""] + [f"- {ended} `{repro(case)}`" for case, ended in outcomes(kept)]
        if table.notes.seen:
            out += ["", "Notes:", ""] + [
                f"{number}. {text}: `{repro(case)}`" for text, (number, case) in table.notes.seen.items()
            ]
    return "\n".join(out) + "\n"


def of_a_pair(result: dict) -> bool:
    """A case of the matrix or similar, not one whose engine was given something untrue."""
    return result["axes"].get("connector", "").startswith("real-") and (
        result["id"].startswith("kv/") or result["id"].endswith("#mla")
    )


def real_results(folders: list[Path]) -> list[dict]:
    """One entry for all cases of a place that ended alike; the first one's id."""
    alike: dict[str, dict] = {}
    for folder in folders:
        for result in filter(of_a_pair, read_run(folder)):
            if result["outcome"] in ("SKIPPED", "NOT_RUN", "ERROR"):
                raise SystemExit(
                    f"{folder}: {result['id']} did not run; it needs ./run_suite.sh --with vllm,vllm-0.27.1,lmcache install"
                )
            axes = {key: result["axes"][key] for key in ("connector", "producer", "consumer", "dtype", "arch", "geometry")}
            axes["geometry"] = "mla-*" if axes["geometry"].startswith("mla-") else "*"
            result |= {"axes": axes}
            alike.setdefault(json.dumps(ending(result)), result)
    return sorted(alike.values(), key=ending)


def ending(result: dict) -> list[str]:
    """Where a case belongs, and how it ended."""
    return [
        *(result["axes"][key] for key in ("connector", "producer", "consumer", "geometry", "dtype")),
        result["outcome"],
        result["verdict"],
        result["why"],
    ]


def read_run(folder: Path) -> list[dict]:
    return [short(result) for result in json.loads((folder / "results.json").read_text())["results"]]


def run_suite() -> list[dict]:
    with tempfile.TemporaryDirectory(prefix="kvcts-pages-") as folder:
        ended = kvcts("run", "--suite", "compatibility", "--out", f"{folder}/run", timeout=900)
        if ended.status not in (0, 1):
            raise SystemExit(f"kvcts run ended with {ended.status}: {ended.err}")
        return read_run(Path(folder) / "run")


def open_results(folders: list[Path]) -> dict:
    results = sorted((result for folder in folders for result in read_run(folder)), key=lambda result: result["id"])
    if wrong := [result["id"] for result in results if result["outcome"] in ("SKIPPED", "NOT_RUN", "ERROR")]:
        raise SystemExit(f"of suite open-cells {wrong[0]} did not run; it needs vLLM (./run_suite.sh --with vllm install)")
    return {"connector": "NixlConnector of vLLM 0.33.0", "results": results}


def sections(page: str) -> dict[str, str]:
    """Title -> section, with its heading."""
    return {part.split("\n", 1)[0]: "## " + part.rstrip("\n") + "\n" for part in page.split("\n## ")[1:]}


def with_kept(made: str, committed: str, kept: list[str]) -> str:
    """The page plus the committed one's sections with such titles, and the rows of its caches that the new page
    lacks."""
    old, new = sections(committed), sections(made)
    rows = [line for line in old.get("Caches", "").splitlines() if line.startswith("| ") and line not in new["Caches"]]
    known = {line.split(" | ")[0] for line in new["Caches"].splitlines()}
    made = made.replace(
        new["Caches"], new["Caches"] + "".join(row + "\n" for row in rows if kept and row.split(" | ")[0] not in known)
    )
    return made + "".join("\n" + text for title, text in old.items() if title.startswith(tuple(kept)) and title not in new)


def page(figures: dict, opened: list[Path] | None = None, real: list[Path] | None = None) -> str:
    results = run_suite()
    others = real_results(real) if real else []
    kept = open_results(opened) if opened else None
    tables = [*matrix_tables(results), *matrix_tables(others), *([open_table(kept)] if kept else [])]
    figures |= {
        "compatibility.cases": len(results),
        "compatibility.pass": sum(result["outcome"] == "PASS" for result in results),
    }
    made = markdown(tables, backend_lines([*results, *others]), len(results), kept)
    return with_kept(made, PAGE.read_text(), [*([] if real else ["real-"]), *([] if opened else ["Cells that"])])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--open", type=Path, action="append", metavar="RUN")
    options.add_argument("--real", type=Path, action="append", metavar="RUN")
    asked = options.parse_args()
    need_program()
    print(page({}, asked.open, asked.real), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
