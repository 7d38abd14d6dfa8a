"""reports/results/injected-faults.md: the detection matrix, and the same saboteurs behind released engines, from
`kvcts inject --json`."""

from __future__ import annotations

from tables import kvcts_answer, table

ENGINES = ["nixl-tcp", "nixl-cma", "ucx-tcp", "ucx-1.22-tcp", "mooncake"]
LEAD = """# Injected faults: what does the suite catch?

Wrong code replaces right code in the cases of a suite: in the engine (`transport`, `writer`), in the connector (`connector`,
`planner`) or in the reader. Each fault is one document in `cases/saboteurs/` ([how to write
one](../guide/inject-faults.md)). The cases are tried in the suite's order, likely ones first, until one does not end as
PASS. *Caught by* names the check that noticed: `bytes`, `guard`, `padding`, `source` (which must not change), `count`
(planned, moved, expected), `late write` (memory is watched after completion), `completion` (reported before the bytes had
arrived), `reader` (what it gathered), `outcome` (an error, a hang or a crash). *Named*: the diagnosis, which cannot see the
fault, explains every wrong byte and gives its class. *Tried*: the number of cases up to the catch. Controls are right code
in the same places and must not be caught. Everything runs on the host, so all evidence is *modelled*.

The hypotheses of the diagnosis were written with these faults at hand. So the share that is named shows that none of them
goes without a name, not how well unknown faults are named; [published bugs](published-bugs.md) show that.
"""
BEHIND = """## Behind released engines

The same faults with a released engine instead of the case's own, between two processes (`kvcts inject --behind ENGINE`).
Faults before the engine (`connector`, `planner`) or after it (`reader`) stay where they are. Faults in an engine
(`transport`, `writer`) sit in front of it: they edit the list, or the bytes, before the engine sees them, so that the engine
itself moves and counts what is wrong. *The same*: caught in the same case by the same checks and described in the same
words. A hang is described with times, which differ; a list that would leave its region is not sent, because engines refuse
it, and a later case catches the fault. *Skipped*: impossible with this engine, which says why. Random faults through the
same engines, with every word of the diagnosis compared: `kvcts-random-faults --engine ENGINE`.
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
    """ "bytes, named", or the outcome instead."""
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
        f"{found['suite']}: {t['caught']} of {t['saboteurs']} faults caught, {t['named']} named{skipped}; "
        f"{t['false_alarms']} false alarms of {controls} controls"
    )


def main_table(found: dict) -> str:
    return table(
        ["fault", "what it does", "caught by", "class", "named", "suite", "tried", "case"],
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
            table(["engine", "faults", "caught", "named", "the same", "skipped", "false alarms"], sums),
            table(
                ["fault", "its own engine", *(f"`{engine}`" for engine in behind)],
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


def page(figures: dict) -> str:
    smoke, nightly = kvcts_answer("sabotage"), kvcts_answer("sabotage", "--suite", "nightly")
    behind = {engine: kvcts_answer("sabotage", "--behind", engine) for engine in ENGINES}
    for found in (smoke, nightly):
        figures |= {f"sabotage.{found['suite']}.{key}": found["totals"][key] for key in ("caught", "named", "false_alarms")}
    figures |= {
        f"sabotage.{engine}.{key}": found["totals"][key]
        for engine, found in behind.items()
        for key in ("caught", "named", "false_alarms")
    }
    sums = "```text\n" + "".join(totals_line(found) + "\n" for found in (smoke, nightly)) + "```\n"
    return "\n".join([LEAD, sums, main_table(smoke), behind_engines(smoke, behind)])
