"""How often does a rule, or a fixture of the suite engine-faults, end as stated? Plays each many times and makes the
page.

    reproduce.py [--runs 20] [--rule GLOB]... [--fixture GLOB]... [--record FILE]   plays what the record lacks; it can be
                                                                                    interrupted and resumed
    reproduce.py --page [--record FILE]                                             prints the page from the record

With neither --rule nor --fixture: all. What waits for the engines' own limits of half a minute (`once: true` of a
rule, controls called `at-the-defaults`) is played once. --page fails on anything stated in cases/ but missing in the
record, or recorded but no longer stated."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import KVCTS, ROOT, results  # noqa: E402

RECORD = ROOT / "build" / "pages" / "reproduction.json"
SUITE = "engine-faults"
ONCE = "#at-the-defaults"
OFTEN = 20  # runs of each
LOOKING_MS = 500  # allowance of the median beyond the promise; the longest may be due to other load
HEAD = """# How often what is stated happens

Rules of engines (`cases/rules`, [the table](rules.md)) and fixtures (`cases/engine-faults`, [what they are
about](engine-defects.md)), each played many times with the released engine, limits of 1 to 3 s where they are 30 s by
default; what waits for the defaults is played once. A cell is *runs that ended as stated* of *runs*. *Racy*: the case states
several answers, and here is how often each came. Play them on a quiet machine: on one that does not get round to its work
within the limits (load 20 on two processors), whatever waits for NIXL to begin or for a list of 100,000 ends as a hang.

    harness/lab/reproduction/reproduce.py             # plays what build/pages/reproduction.json lacks
    harness/lab/reproduction/reproduce.py --page      # this page

"""


def kvcts(*argv: str, cases: Path) -> subprocess.CompletedProcess:
    return subprocess.run([KVCTS, "--cases", str(cases), *argv], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def stated_rules(cases: Path) -> list[dict]:
    done = kvcts("rules", "--list", "--json", cases=cases)
    if done.returncode != 0:
        raise SystemExit(f"kvcts conformance --rules --list: {done.stderr}")
    return json.loads(done.stdout)


def fixtures(cases: Path) -> list[str]:
    done = kvcts("list", "--suite", SUITE, cases=cases)
    if done.returncode != 0:
        raise SystemExit(f"kvcts list --suite {SUITE}: {done.stderr}")
    return done.stdout.split()


def chosen(name: str, globs: list[str] | None, others: list[str] | None) -> bool:
    """Without a glob: chosen, unless only the other kind was requested."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs) if globs else not others


def play_rule(stated: dict, engine: str, runs: int, cases: Path) -> dict | None:
    done = kvcts("rules", stated["rule"], "--engine", engine, "--runs", str(runs), "--json", cases=cases)
    if done.returncode not in (0, 1):
        raise SystemExit(f"kvcts conformance --rules {stated['rule']} --engine {engine}: {done.stderr}")
    (one,) = json.loads(done.stdout)
    if one["verdict"] == "SKIPPED":
        return None
    return {
        "version": one["version"],
        "date": time.strftime("%Y-%m-%d"),
        "seen": one["seen"],
        "took_ms": [round(ms, 1) for ms in one["took_ms"]],
    }


def together(before: dict | None, one: dict) -> dict:
    if before is None or before["version"] != one["version"]:
        return one
    return {
        **one,
        "seen": dict(Counter(before["seen"]) + Counter(one["seen"])),
        "took_ms": before["took_ms"] + one["took_ms"],
    }


def outcome(case: dict) -> str:
    words = [case["outcome"], case.get("diagnosis", {}).get("fault_class", "")]
    return " ".join(word for word in words if word) + (f" at {case['phase']}" if case.get("phase") else "")


def play_fixtures(ids: list[str], cases: Path, jobs: int) -> dict[str, dict]:
    with tempfile.TemporaryDirectory() as place:
        wanted = [word for one in ids for word in ("--id", one)]
        done = kvcts("run", "--suite", SUITE, *wanted, "-j", str(jobs), "--out", place + "/run", cases=cases)
        if done.returncode not in (0, 1):
            raise SystemExit(f"kvcts run --suite {SUITE}: {done.stderr}")
        return {case["id"]: case for case in results(Path(place) / "run")}


def lines(group: dict) -> str:
    """A JSON object, one member per line."""
    return (
        "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(group[key], sort_keys=True)}" for key in sorted(group)) + "\n}"
    )


def save(record: dict, file: Path) -> None:
    rules = ",\n".join(f"{json.dumps(rule)}: {lines(engines)}" for rule, engines in sorted(record["rules"].items()))
    part = file.with_suffix(".part")
    part.write_text(
        f'{{"machine": {json.dumps(record.get("machine", ""))},\n"rules": {{\n{rules}\n}},\n"fixtures": '
        f"{lines(record['fixtures'])}\n}}\n"
    )
    part.replace(file)


def play(options: argparse.Namespace) -> None:
    record = json.loads(options.record.read_text()) if options.record.exists() else {"rules": {}, "fixtures": {}}
    lock = threading.Lock()

    def pair(stated: dict, engine: str, lacking: int) -> None:
        one = play_rule(stated, engine, lacking, options.cases)
        if one is None:
            return
        with lock:
            known = record["rules"].setdefault(stated["rule"], {})
            known[engine] = together(known.get(engine), one)
            save(record, options.record)
            print(
                f"{stated['rule']:<34} {engine:<18} "
                + " | ".join(f"{count} x {text}" for text, count in one["seen"].items()),
                flush=True,
            )

    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = []
        for stated in stated_rules(options.cases):
            for engine in stated["expect"] if chosen(stated["rule"], options.rule, options.fixture) else []:
                have = sum(record["rules"].get(stated["rule"], {}).get(engine, {}).get("seen", {}).values())
                if (lacking := (1 if stated["once"] else options.runs) - have) > 0:
                    waiting.append(pool.submit(pair, stated, engine, lacking))
        for one in waiting:
            one.result()
    for _ in range(options.runs):
        ids = [
            name
            for name in fixtures(options.cases)
            if chosen(name, options.fixture, options.rule)
            and sum(record["fixtures"].get(name, {}).get("seen", {}).values()) < (1 if name.endswith(ONCE) else options.runs)
        ]
        if not ids:
            break
        for name, case in play_fixtures(ids, options.cases, options.jobs).items():
            if case["outcome"] == "SKIPPED":
                continue
            one = record["fixtures"].setdefault(name, {"seen": {}, "as_expected": 0})
            one["seen"][outcome(case)] = one["seen"].get(outcome(case), 0) + 1
            one["as_expected"] += case["verdict"] == "as expected"
            one["date"] = time.strftime("%Y-%m-%d")
        save(record, options.record)
        print(f"{len(ids)} fixtures", flush=True)


def table(head: list[str], rows: list[list[str]]) -> str:
    return (
        "\n".join(
            ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)] + ["| " + " | ".join(row) + " |" for row in rows]
        )
        + "\n"
    )


def seconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def rates(seen: dict[str, int]) -> str:
    runs = sum(seen.values())
    return "; ".join(
        f"{count} of {runs}: {text}" for text, count in sorted(seen.items(), key=lambda item: (-item[1], item[0]))
    )


def page(record: dict, stated: list[dict], ids: list[str]) -> tuple[str, list[str]]:
    """The page, and the faults of the record."""
    wrong = []
    engines = sorted({engine for rule in stated for engine in rule["expect"]})
    versions: dict[str, Counter] = {engine: Counter() for engine in engines}
    rows, racy, timed, counts = [], [], [], Counter()
    for rule in stated:
        known = record["rules"].get(rule["rule"], {})
        cells = [f"[{rule['rule']}](rules.md#{rule['rule']})" + (" (once)" if rule["once"] else "")]
        for engine in engines:
            answers = rule["expect"].get(engine)
            one = known.get(engine)
            if answers is None:
                if one is not None:
                    wrong.append(f"rule {rule['rule']} states nothing about {engine}, but the record has it")
                cells.append("")
                continue
            if one is None:
                wrong.append(f"rule {rule['rule']} was not played with {engine}")
                cells.append("?")
                continue
            versions[engine][one["version"]] += 1
            runs, good = sum(one["seen"].values()), sum(count for text, count in one["seen"].items() if text in answers)
            counts["pairs"] += 1
            counts["often"] += runs >= OFTEN
            counts["plays"] += runs
            counts["all"] += good == runs and len(answers) == 1
            counts["racy"] += len(answers) > 1
            cells.append(f"{good} of {runs}" + (" racy" if len(answers) > 1 else ""))
            if good < runs:
                wrong.append(f"rule {rule['rule']} with {engine}: {rates(one['seen'])}, stated: {' | '.join(answers)}")
            if len(answers) > 1:
                racy.append([rule["rule"], f"`{engine}` {one['version']}", rates(one["seen"])])
            if took := sorted(one["took_ms"]):
                promised = rule["promised_ms"].get(engine)
                if promised and took[len(took) // 2] > promised + LOOKING_MS:
                    wrong.append(
                        f"rule {rule['rule']} with {engine} took {seconds(took[len(took) // 2])}, promised are "
                        f"{seconds(promised)}"
                    )
                timed.append(
                    [
                        rule["rule"],
                        f"`{engine}` {one['version']}",
                        "; ".join(sorted(one["seen"])),
                        seconds(promised) if promised else "nothing",
                        f"{seconds(took[0])} / {seconds(took[len(took) // 2])} / {seconds(took[-1])}",
                    ]
                )
        rows.append(cells)
    for name in sorted(set(record["rules"]) - {rule["rule"] for rule in stated}):
        wrong.append(f"there is no rule {name}, but the record has it")
    shown = []
    for name in ids:
        one = record["fixtures"].get(name)
        if one is None:
            wrong.append(f"fixture {name} was not played")
            continue
        runs = sum(one["seen"].values())
        counts["fixtures"] += 1
        counts["often fixtures"] += runs >= OFTEN
        counts["fixture plays"] += runs
        counts["good fixtures"] += one["as_expected"] == runs
        shown.append(
            [
                f"`{name}`",
                f"{one['as_expected']} of {runs}",
                rates(one["seen"]) if len(one["seen"]) > 1 else next(iter(one["seen"])),
            ]
        )
        if one["as_expected"] < runs:
            wrong.append(f"fixture {name} ended as expected in {one['as_expected']} of {runs} runs")
    for name in sorted(set(record["fixtures"]) - set(ids)):
        wrong.append(f"there is no fixture {name}, but the record has it")
    text = HEAD
    dates = {one["date"] for group in (*record["rules"].values(), record["fixtures"]) for one in group.values()}
    text += (
        f"{counts['pairs']} pairs of a rule and an engine: {counts['all']} with the one stated answer in every run, "
        f"{counts['racy']} racy; "
        f"{counts['plays']:,} plays, {counts['often']} pairs were played {OFTEN} times or more. {counts['fixtures']} "
        f"fixtures and controls: {counts['good fixtures']} as "
        f"stated in every run; {counts['fixture plays']:,} plays, {counts['often fixtures']} of them {OFTEN} times or "
        f"more. Measured "
        f"{' and '.join(sorted(dates))} "
        f"on {record.get('machine', 'an unrecorded machine')}.\n\n## Racy\n\n"
    )
    text += table(["rule", "engine", "how often"], racy) if racy else "None.\n"
    text += (
        "\n## Time to the error\n\nHow long the step took whose time counts, shortest / median / longest, beside what "
        "the engine's limits promise "
        "(each rule says which in the table of rules).\n\n"
    )
    text += table(["rule", "engine", "ended as", "promised", "took"], timed)
    text += "\n## Fixtures\n\n" + table(["case", "as stated", "outcome"], shown)
    text += "\n## Rules\n\n" + table(
        ["rule"] + [f"`{engine}` {versions[engine].most_common(1)[0][0] if versions[engine] else ''}" for engine in engines],
        rows,
    )
    return text, wrong


def machine() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown processor",
    )
    return f"{model}, {os.cpu_count()} processors, shared with other work"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--cases", type=Path, default=ROOT / "cases")
    parser.add_argument("--runs", type=int, default=OFTEN)
    parser.add_argument("--jobs", type=int, default=1, help="pairs of a rule and an engine, or fixtures, at once")
    parser.add_argument("--rule", action="append")
    parser.add_argument("--fixture", action="append")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if not options.page:
        play(options)
        record = json.loads(options.record.read_text())
        record["machine"] = machine()
        save(record, options.record)
        return 0
    text, wrong = page(json.loads(options.record.read_text()), stated_rules(options.cases), fixtures(options.cases))
    print(text, end="")
    for line in wrong:
        print(f"reproduce.py: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
