"""reports/results/published-bugs.md: figures by class and by system, and every entry of cases/museum/index with how its
cases ended in a run of the suite museum."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from pathlib import Path

from tables import cell, documents, table

from kvtest import ROOT, kvcts, results

LEAD = """# Published bugs

{entries} faults of KV caches from public reports. {confirmed} reports say which bytes, ids or shapes are wrong
(*confirmed*); {partial} say less (*partial*). Each is a scripted case in `cases/museum/` with controls that must pass, or
has a line there that says why it cannot be one. The cases follow the reports; none of the reported programs was run, so all
evidence is *modelled*. *Caught*: the case does not end as PASS. *Named*: the diagnosis, which cannot see what the case did
wrong, gives the class that heads the report in `cases/museum/index` (`kvcts explain --precedence` shows which class comes
first).

`kvcts repro museum/m012-kvcached-391` runs one entry phase by phase; `kvcts report DIR --by link` lists all of them after
`kvcts run --suite museum --out DIR`.
"""


KEYS = {"id", "report", "system", "class", "data", "date", "version"}
DATA = ("confirmed", "partial")
GIVEN_UP = re.compile(r"# not expressed: (M\d+) (\S+#\d+): (\S.*)")


def need(met: object, sentence: str) -> None:
    if not met:
        raise RuntimeError(sentence)


def report_of(link: str) -> str:
    """As the index has it, owner/name#12, of an issue or a pull request on GitHub; "" of other links."""
    found = re.fullmatch(r"https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)/?", link)
    return f"{found[1]}#{found[2]}" if found else ""


def add_case(case: dict, entries: dict[str, dict]) -> None:
    name = case["case"]
    number = re.fullmatch(r"museum/m(\d+)-[^/]*", name)
    need(
        number and f"M{number[1]}" in entries, f"{name}: expected museum/m<number>-..., with an entry of cases/museum/index"
    )
    entry = entries[f"M{number[1]}"]
    linked = [link for link in case.get("links", []) if report_of(link) == entry["report"]]
    need(linked, f"{name}: expected a link to {entry['report']}; add it to 'links'")
    found = case.get("expected", {}).get("class", "none")
    need(found == entry["class"], f"{name}: expected the class of {entry['id']}, {entry['class']}, found {found}")
    need(case.get("steps"), f"{name}: expected memory and steps, found neither")
    need(case.get("controls"), f"{name}: expected a control, found none; add the same case without its fault")
    entry.setdefault("link", linked[0])
    entry["cases"].append(case)


def add_reason(line: str, entries: dict[str, dict]) -> None:
    found = GIVEN_UP.fullmatch(line)
    need(found, f"expected '# not expressed: ID REPOSITORY#NUMBER: REASON', found '{line}'")
    entry = entries.get(found[1])
    need(entry and entry["report"] == found[2], f"expected an entry of cases/museum/index with that report, found '{line}'")
    need("reason" not in entry, f"{found[1]}: expected one line '# not expressed', found another")
    entry["reason"] = found[3]


def read(cases: Path = ROOT / "cases") -> list[dict]:
    """The entries of the index, each with its cases or the reason why it has none."""
    index = [entry for part in documents("museum/index", cases) for entry in part["entries"]]
    for entry in index:
        need(entry.keys() == KEYS and entry["data"] in DATA, f"cases/museum/index: expected {sorted(KEYS)}, found {entry}")
    entries = {entry["id"]: entry | {"cases": []} for entry in index}
    need(len(entries) == len(index), "cases/museum/index: expected every id once")
    for case in documents("museum", cases):
        add_case(case, entries)
    for path in sorted((cases / "museum").glob("*.yaml")):
        for line in re.findall(r"^# not expressed.*", path.read_text(), re.M):
            add_reason(line, entries)
    for entry in entries.values():
        both = "both" if entry["cases"] else "neither"
        need(
            bool(entry["cases"]) != ("reason" in entry),
            f"{entry['id']}: expected cases or a line '# not expressed', found {both}",
        )
        entry.setdefault("link", "https://github.com/{}/issues/{}".format(*entry["report"].split("#")))
    return list(entries.values())


def fault_class(result: dict) -> str:
    return result.get("diagnosis", {}).get("fault_class", "")


def words(result: dict) -> str:
    """Outcome and class."""
    if result["outcome"] == "ERROR":
        return "ERROR: " + result["message"]
    unnamed = ", not named" if result["outcome"] == "FAIL" else ""
    return result["outcome"] + (" " + fault_class(result) if fault_class(result) else unnamed)


def judge(entry: dict, ended: dict[str, dict]) -> dict:
    """The entry with how it fared. Caught: each of its cases ended as a fault does. Named: in the entry's class, too."""
    of = [ended.get(case["case"], {"outcome": "NOT_RUN"}) for case in entry["cases"]]
    controls = [f"{case['case']}#{control['name']}" for case in entry["cases"] for control in case["controls"]]
    caught = bool(of) and all(result["outcome"] in ("FAIL", "HANG", "CRASH", "REFUSED") for result in of)
    return entry | {
        "expressed": bool(of),
        "caught": caught,
        "named": caught and all(fault_class(result) == entry["class"] for result in of),
        "ending": "; ".join(map(words, of)) or "not expressed",
        "controls": len(controls),
        "controls_good": sum(ended.get(name, {}).get("verdict") == "as expected" for name in controls),
    }


def sums(entries: list[dict]) -> list:
    confirmed = [e for e in entries if e["data"] != "partial"]

    def count(key: str) -> int:
        return sum(e[key] for e in entries)

    good, controls = (sum(e[key] for e in entries) for key in ("controls_good", "controls"))
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
    index = read()
    with tempfile.TemporaryDirectory(prefix="kvcts published bugs ") as folder:
        ended = kvcts("run", "--suite", "museum", "--out", folder, timeout=7200)
        need(ended.status in (0, 1), f"kvcts run --suite museum ended with {ended.status}: {ended.err}")
        by_id = {result["id"]: result for result in results(Path(folder))}
    entries = [judge(entry, by_id) for entry in index]
    parts = {data: [e for e in entries if e["data"] == data] for data in DATA}
    for part, of in parts.items():
        figures |= {f"museum.{part}.{key}": sum(e[key] for e in of) for key in ("expressed", "caught", "named")}
    good, controls = (sum(e[key] for e in entries) for key in ("controls_good", "controls"))
    figures |= {"museum.controls": good, "museum.controls_that_alarm": controls - good}
    figures["museum.unwaived"] = len(unwaived(entries))
    out = [
        LEAD.format(entries=len(entries), **{data: len(of) for data, of in parts.items()}),
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
