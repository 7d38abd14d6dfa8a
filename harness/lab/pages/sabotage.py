"""reports/sabotage.md: the detection matrix, the same saboteurs behind released engines and against other harnesses,
from `kvcts inject --json`."""

from __future__ import annotations

from tables import kvcts_answer, table

ENGINES = ["nixl-tcp", "nixl-cma", "ucx-tcp", "ucx-1.22-tcp", "mooncake"]
LEAD = """# Saboteurs: what would the suite catch?

Code that is wrong on purpose takes the place of right code in the cases of a suite: of the engine (`transport`, `writer`),
of the connector (`connector`, `planner`) or of the reader. Each is one document in `cases/saboteurs/` ([how to write
one](../cases/README.md#writing-a-saboteur)). The cases are tried in the suite's order, those first that a saboteur names as
likely, until one of them does not end in PASS. *Caught by* says which check noticed: `bytes`, `guard`, `padding`, `source`
(which must not change), `count` (planned, moved, expected), `late write` (memory is watched after completion), `completion`
(reported before the bytes had arrived), `reader` (what was gathered), `outcome` (an error, a hang or a crash). *Named*: the
diagnosis of that case, which does not see the saboteur, explains every wrong byte and gives its class. *Tried*: cases up to
the catch, or in all. Controls are right code in the same places; they are not caught. All of it runs on the host, so the
evidence is *modelled*.

The families of hypotheses were written with these saboteurs at hand: the share that is named says that none of them goes
without a name, not how well unknown faults are named ([the museum](museum.md) does).

`./run_suite.sh pages` writes this page anew.
"""
BEHIND = """## Behind released engines

The same saboteurs with a released engine in the place of the case's own, between two processes (`kvcts inject --behind
ENGINE`). What is wrong before an engine is asked (`connector`, `planner`) or after (`reader`) stays where it is. What is
wrong in an engine (`transport`, `writer`) stands in front of it: it edits the list before the engine sees it, or the bytes
that the engine is given, so that the engine itself moves what is wrong and counts it. *The same*: caught in the same case by
the same checks, and told of in the same words. A hang is told of with times, which differ; a list that would leave its
region is not sent, as engines refuse it: then a later case catches. *Skipped*: cannot be had with this engine, which says
why. Random faults through the same engines, with every word of the diagnosis compared: `kvcts-random-faults --engine
ENGINE`.
"""
HARNESSES = """## The same saboteurs against what other harnesses write and look at

The same cases with the fills of benchdnn's reorder driver, of UCX's two test buffers, of nvbandwidth and of nccl-tests in
the place of ours, and with their checks: the bytes that had to arrive, once, and nothing else (no guards, no free memory, no
source, no counts, not again). Structure and versions of the fills are those in `harness/run/checker/emulated.cpp`:
*emulated*, none of these programs ran, and moving KV caches between ranks is not what any of them is for. Each saboteur is
tried in up to eight cases, from the one on in which ours caught it; *3 of 8* are the cases that noticed.
"""


def naming(row: dict) -> str:
    if not row["caught"] or row["harmless"]:
        return ""
    return "yes" if row["named"] else row["diagnosed"] or "no"


def noticed(row: dict) -> str:
    if row["caught"]:
        return " + ".join(row["checks"])
    return "SKIPPED" if "skipped" in row else "not caught" if row["harmless"] else "NOT CAUGHT"


def caught_and_named(row: dict | None) -> str:
    """ "bytes, named", or what became of it instead."""
    if row is None or row["tried"] == 0:
        return "no case"
    if not row["caught"]:
        return f"SKIPPED: {row['skipped']}" if "skipped" in row else noticed(row)
    if row["harmless"]:
        return "FALSE ALARM"
    return noticed(row) + (", named" if row["named"] else ", called " + naming(row))


def told_alike(row: dict, other: dict | None) -> bool:
    keys = ("case", "checks", "message", "wrong_bytes", "diagnosed", "diagnosis")
    return (
        not row["harmless"]
        and row["caught"]
        and bool(other)
        and other["caught"]
        and all(row[key] == other[key] for key in keys)
    )


def totals_line(found: dict) -> str:
    t, controls = found["totals"], sum(row["harmless"] for row in found["saboteurs"])
    skipped = f", {t['skipped']} skipped" if t["skipped"] else ""
    return (
        f"{found['suite']}: {t['caught']} of {t['saboteurs']} saboteurs caught, {t['named']} named{skipped}; "
        f"{t['false_alarms']} false alarms of {controls} controls"
    )


def main_table(found: dict) -> str:
    return table(
        ["saboteur", "what it does", "caught by", "class", "named", "suite", "tried", "case"],
        [
            [
                row["saboteur"],
                row["title"],
                noticed(row),
                "(right code)" if row["harmless"] else row["class"],
                naming(row),
                row.get("suite", ""),
                row["tried"],
                f"`{row['case']}`" if row["caught"] else "",
            ]
            for row in found["saboteurs"]
        ],
    )


def behind_engines(plain: dict, behind: dict[str, dict]) -> str:
    rows = {engine: {row["saboteur"]: row for row in found["saboteurs"]} for engine, found in behind.items()}
    sums = [
        [
            f"`{engine}`",
            *(found["totals"][key] for key in ("saboteurs", "caught", "named")),
            sum(
                told_alike(row, next((p for p in plain["saboteurs"] if p["saboteur"] == row["saboteur"]), None))
                for row in found["saboteurs"]
            ),
            found["totals"]["skipped"],
            found["totals"]["false_alarms"],
        ]
        for engine, found in behind.items()
    ]
    return "\n".join(
        [
            BEHIND,
            table(["engine", "saboteurs", "caught", "named", "the same", "skipped", "false alarms"], sums),
            table(
                ["saboteur", "its own engine", *(f"`{engine}`" for engine in behind)],
                [
                    [
                        row["saboteur"],
                        caught_and_named(row),
                        *(caught_and_named(rows[engine].get(row["saboteur"])) for engine in behind),
                    ]
                    for row in plain["saboteurs"]
                ],
            ),
        ]
    )


def against_harnesses(harnesses: list[dict], plain: dict) -> str:
    ours = {row["saboteur"]: row for row in plain["saboteurs"]}
    names = list(harnesses[0]["noticed"])

    def words(line: dict, name: str) -> str:
        caught = ours[line["saboteur"]]["caught"] if name == names[0] else line["noticed"][name] > 0
        if line["harmless"]:
            return "FALSE ALARM" if caught else "passes"
        if not caught:
            return "**MISS**"
        return "caught" if name == names[0] else f"{line['noticed'][name]} of {line['cases'][name]}"

    rows = [[line["saboteur"], *(words(line, name) for name in names)] for line in harnesses]
    wrong = [(line, row[1:]) for line, row in zip(harnesses, rows) if not line["harmless"]]
    total = [sum(cells[i] != "**MISS**" for _, cells in wrong) for i in range(len(names))]
    return "\n".join([HARNESSES, table(["saboteur", *names], [*rows, [f"**caught of {len(wrong)}**", *total]])])


def page(figures: dict) -> str:
    smoke, nightly = kvcts_answer("sabotage"), kvcts_answer("sabotage", "--suite", "nightly")
    harnesses = kvcts_answer("sabotage", "--harnesses")["harnesses"]
    behind = {engine: kvcts_answer("sabotage", "--behind", engine) for engine in ENGINES}
    for found in (smoke, nightly):
        figures |= {f"sabotage.{found['suite']}.{key}": found["totals"][key] for key in ("caught", "named", "false_alarms")}
    figures |= {
        f"sabotage.{engine}.{key}": found["totals"][key]
        for engine, found in behind.items()
        for key in ("caught", "named", "false_alarms")
    }
    sums = "```text\n" + "".join(totals_line(found) + "\n" for found in (smoke, nightly)) + "```\n"
    return "\n".join([LEAD, sums, main_table(smoke), behind_engines(smoke, behind), against_harnesses(harnesses, smoke)])
