"""reports/results/published-bugs.md: figures by class and by system, and every entry with how it ends, from `kvcts
report --museum --json`."""

from __future__ import annotations

import re
from collections import defaultdict

from tables import cell, kvcts_answer, table

from kvtest import ROOT

LEAD = """# Published bugs

{entries} faults of KV caches from public reports. {confirmed} reports say which bytes, ids or shapes are wrong
(*confirmed*); {partial} say less (*partial*). Each is a scripted case in `cases/museum/` with controls that must pass, or
has a line there that says why it cannot be one. The cases follow the reports; none of the reported programs was run, so all
evidence is *modelled*. *Caught*: the case does not end as PASS. *Named*: the diagnosis, which cannot see what the case did
wrong, gives the class that heads the report in `cases/museum/index` (`kvcts explain --precedence` shows which class comes
first).

`kvcts repro museum/m012-kvcached-391` runs one entry phase by phase.
"""


def sums(entries: list[dict]) -> list:
    confirmed = [e for e in entries if e["data"] != "partial"]

    def count(key: str) -> int:
        return sum(bool(e.get(key)) for e in entries)

    good, controls = (sum(e.get(key, 0) for e in entries) for key in ("controls_good", "controls"))
    return [len(entries), len(confirmed), count("expressed"), count("caught"), count("named"), f"{good} of {controls}"]


def grouped(entries: list[dict], key: str) -> dict[str, list[dict]]:
    groups = defaultdict(list)
    for entry in sorted(entries, key=lambda e: e[key]):
        groups[entry[key]].append(entry)
    return groups


def figures_by(entries: list[dict], key: str) -> str:
    rows = [[name, *sums(of)] for name, of in sorted(grouped(entries, key).items(), key=lambda item: -len(item[1]))]
    return table(
        [key, "entries", "confirmed", "expressed", "caught", "named", "controls"], [*rows, ["**all**", *sums(entries)]]
    )


def line(entry: dict) -> list[str]:
    what, ending = entry["cases"][0]["title"] if entry["expressed"] else entry["reason"], entry["ending"]
    if entry["expressed"] and not entry["caught"]:
        ending = "**missed**: " + ending
    elif entry["expressed"] and not entry["named"]:
        ending = "**misnamed**: " + ending
    return [
        entry["id"] + (" (partial)" if entry["data"] == "partial" else ""),
        f"[{entry['report']}]({entry['link']})",
        entry["date"],
        cell(entry["version"]),
        entry["class"],
        cell(what),
        cell(ending),
        f"{entry['controls_good']} of {entry['controls']}" if entry["expressed"] else "",
    ]


def unwaived(entries: list[dict]) -> set[str]:
    """Entries that are misnamed or missed without a waiver, or have an unnecessary waiver."""
    lacking = {entry["id"] for entry in entries if entry["expressed"] and not entry["named"]}
    waivers = "".join(path.read_text() for path in sorted((ROOT / "cases" / "waivers").glob("*.yaml")))
    return lacking ^ {"M" + number for number in re.findall(r"\bid: museum/m(\d+)-", waivers)}


def page(figures: dict) -> str:
    found = kvcts_answer("museum")
    entries, totals = found["entries"], found["totals"]
    for part in ("confirmed", "partial"):
        figures |= {f"museum.{part}.{key}": totals[part][key] for key in ("expressed", "caught", "named")}
    figures |= {
        "museum.controls": totals["controls_good"],
        "museum.controls_that_alarm": totals["controls"] - totals["controls_good"],
    }
    figures["museum.unwaived"] = len(unwaived(entries))
    out = [LEAD.format(entries=len(entries), **{part: totals[part]["entries"] for part in ("confirmed", "partial")})]
    out.append("targets: " + ("missed: " + "; ".join(found["missed"]) if found["missed"] else "met") + ".\n")
    out += [
        "## By class\n",
        figures_by(entries, "class"),
        "## By system\n",
        figures_by(entries, "system"),
        "## Every entry\n",
    ]
    for system, of in grouped(entries, "system").items():
        out += [
            f"### {system}\n",
            table(["entry", "report", "date", "version", "class", "what", "ends", "controls"], map(line, of)),
        ]
    return "\n".join(out)
