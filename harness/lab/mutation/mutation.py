"""Would our own tests notice if the oracle, the comparison or the algebra of layouts were wrong? Applies mutants to
them, runs their tests, and reports which mutants survive.

    mutation.py --build build [--sample 160] [--seed 1] [--results results.json] [--page build/pages/mutation.md]
    mutation.py --page build/pages/mutation.md --results results.json     only writes the page

All mutants of a sample are compiled in behind switches (mutant.hpp), so a file is compiled once. A mutant is killed
when a test fails, dies or does not end. survivors.txt justifies survivors; one without a justification is a gap in
the tests."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Target:
    path: str  # the mutated file
    units: list[str]  # translation units compiled with it
    tests: list[str]  # rooms whose tests cover it, quick ones first


TARGETS = [
    Target("harness/layout/map.cpp", ["harness/layout/map.cpp"], ["layout", "scene/oracle"]),
    Target(
        "harness/scene/oracle/oracle.cpp", ["harness/scene/oracle/oracle.cpp"], ["scene/oracle", "run/checker", "diagnose"]
    ),
    Target("kernels/compare.cpp", ["kernels/compare.cpp"], ["kernels", "run/checker"]),
    Target("kernels/check.cpp", ["kernels/check.cpp"], ["kernels", "run/checker"]),
    Target(
        "kernels/sinks.hpp",
        ["kernels/check.cpp", "kernels/compare.cpp", "kernels/image.cpp", "kernels/poison.cpp"],
        ["kernels", "run/checker"],
    ),
    Target("harness/run/checker/open_case.cpp", ["harness/run/checker/open_case.cpp"], ["run/checker"]),
]
# For a room with other subjects, the suites that cover these files.
SUITES = {"kernels": {"Compare", "Check", "Image", "Intervals", "Isa", "Digest"}}
LIBRARY = {
    "harness/layout": "libkvcts_layout.a",
    "harness/scene/oracle": "libkvcts_oracle.a",
    "kernels": "libkvcts_kernels.a",
    "harness/run/checker": "libkvcts_checker.a",
}


class Workshop:
    """The mutated files and the tests linked with them."""

    def __init__(self, build: Path, folder: Path):
        self.build, self.folder = build, folder
        self.commands = {
            Path(c["file"]).resolve().relative_to(ROOT).as_posix(): shlex.split(c["command"])
            for c in json.loads((build / "compile_commands.json").read_text())
            if Path(c["file"]).resolve().is_relative_to(ROOT)
        }
        self.batches = {unit: file for file in self.commands if "/batches/" in file for unit in self.members(file)}
        self.programs: dict[str, Path] = {}
        self.tests: dict[str, tuple[str, str]] = {}  # room -> program, filter
        for listing in sorted((build / "tests").glob("*.cmake")):
            for suite, test, room in re.findall(
                r"^add_test\(\[==\[[^.]+\.([^.]+)\.(.+?)\]==\].*\n.*room:([\w/]+)", listing.read_text(), re.M
            ):
                if room not in SUITES or suite in SUITES[room]:
                    program, names = self.tests.get(room, (f"kvcts_test_{listing.stem}", ""))
                    self.tests[room] = (program, f"{names}:{suite}.{test}" if names else f"{suite}.{test}")

    @staticmethod
    def members(batch: str) -> list[str]:
        """The sources that a batch includes, as paths from the checkout."""
        lines = (ROOT / batch).read_text().splitlines()
        return [os.path.normpath(Path(batch).parent / line.split('"')[1]) for line in lines if line.startswith("#include")]

    def object(self, unit: str) -> Path:
        return self.folder / (self.batches.get(unit, unit).replace("/", "_") + ".o")

    def compile(self, unit: str) -> subprocess.CompletedProcess:
        """The batch that contains the unit, or the unit alone."""
        whole, out = self.batches.get(unit, unit), self.object(unit)
        argv = self.commands[whole]
        argv = [
            a for a in argv[next(i for i, a in enumerate(argv) if a.endswith("c++")) :] if a not in ("-Werror", "-pedantic")
        ]
        argv[argv.index("-o") + 1] = str(out)
        mutated = [self.folder / "source" / u for u in (self.members(whole) if whole != unit else [unit])]
        sources = [m if m.exists() else ROOT / m.relative_to(self.folder / "source") for m in mutated]
        argv[-1] = str(out) + ".cpp"
        Path(argv[-1]).write_text("".join(f'#include "{source}"\n' for source in sources))
        for flag in ("-MT", "-MF"):
            if flag in argv:
                argv[argv.index(flag) + 1] = str(out) + ".d"
        return subprocess.run(
            [argv[0], f"-I{self.folder / 'source'}", f"-I{ROOT}", "-w", *argv[1:]],
            cwd=self.build,
            capture_output=True,
            text=True,
        )

    def link(self, room: str, units: list[str]) -> None:
        test = self.tests[room][0]
        if test in self.programs:
            return
        line = subprocess.run(
            ["ninja", "-t", "commands", "-s", f"bin/{test}"], cwd=self.build, capture_output=True, text=True, check=True
        ).stdout.strip()
        line = line.removeprefix(": && ").removesuffix(" && :").split(" && ")[0]
        argv = shlex.split(line)
        first = next(i for i, a in enumerate(argv) if a.endswith(".o"))
        objects = sorted(
            {str(self.object(u)) for u in units if any(a.endswith("/" + LIBRARY[u.rsplit("/", 1)[0]]) for a in argv)}
        )
        program = self.folder / test
        argv[argv.index("-o") + 1] = str(program)
        subprocess.run([*argv[:first], *objects, *argv[first:]], cwd=self.build, check=True, capture_output=True)
        self.programs[test] = program

    def run(self, room: str, number: int, timeout: float) -> tuple[str, str]:
        """How the test ended with the mutant active: passed, failed, died, did not end; and what the mutant noted."""
        notes = self.folder / "notes"
        notes.unlink(missing_ok=True)
        env = {**os.environ, "KVCTS_MUTANT": str(number), "KVCTS_MUTANT_NOTES": str(notes), "RC_PARAMS": "seed=1"}
        program, names = self.tests[room]
        try:
            status = subprocess.run(
                [str(self.programs[program]), "--gtest_fail_fast", "--gtest_brief=1", f"--gtest_filter={names}"],
                cwd=self.folder,
                env=env,
                timeout=timeout,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ).returncode
            ending = "passed" if status == 0 else "failed" if status > 0 else "died"
        except subprocess.TimeoutExpired:
            ending = "did not end"
        return ending, notes.read_text() if notes.exists() else ""


def sites_of(targets: list[Target]):
    from mutators import Mutator

    mutators, first = [], 1
    for target in targets:
        mutators.append(Mutator(target.path, (ROOT / target.path).read_bytes(), first))
        first = mutators[-1].next
    return mutators


def sampled(mutators, size: int, seed: int) -> list[set[int]]:
    """Per file a share proportional to its mutants; all if size is 0."""
    total = sum(len(m.sites) for m in mutators)
    chance = random.Random(seed)
    return [
        set(
            chance.sample(
                sorted(m.sites), len(m.sites) if size == 0 else min(len(m.sites), max(8, round(size * len(m.sites) / total)))
            )
        )
        for m in mutators
    ]


def compile_all(shop: Workshop, targets: list[Target], mutators, chosen: list[set[int]]) -> None:
    """Removes mutants that do not compile, by the lines of the errors."""
    for _ in range(12):
        for mutator, numbers in zip(mutators, chosen):
            path = shop.folder / "source" / mutator.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(mutator.rendered(numbers))
        failed = False
        for unit in dict.fromkeys(u for t in targets for u in t.units):
            done = shop.compile(unit)
            if done.returncode == 0:
                continue
            failed = True
            lines = {
                (m.path, int(parts[1]))
                for m in mutators
                for line in done.stderr.splitlines()
                if ": error:" in line or "required from here" in line
                for parts in [line.split(m.path, 1)[-1].split(":")]
                if m.path in line and len(parts) > 1 and parts[1].isdigit()
            }
            gone = {n for m, numbers in zip(mutators, chosen) for n in numbers if (m.path, m.sites[n].line) in lines}
            if not gone:
                raise SystemExit(f"{unit} does not compile, and no mutant is to blame:\n{done.stderr[-3000:]}")
            for numbers in chosen:
                numbers -= gone
        if not failed:
            return
    raise SystemExit("mutants do not compile")


def run_all(build: Path, size: int, seed: int, say, before: dict | None = None) -> dict:
    """`before`: results whose survivors are retried; killed ones stay killed."""
    mutators = sites_of(TARGETS)
    chosen = sampled(mutators, size, seed)
    known = {m["number"]: m for m in before["mutants"]} if before else {}
    if before:
        again = {n for n, m in known.items() if m["ending"] == "passed"}
        chosen = [{n for n in again if n in m.sites} for m in mutators]
    asked = sum(map(len, chosen))
    with tempfile.TemporaryDirectory(prefix="kvcts-mutation-") as name:
        shop = Workshop(build.resolve(), Path(name))
        compile_all(shop, TARGETS, mutators, chosen)
        units = list(dict.fromkeys(u for t in TARGETS for u in t.units))
        limits = {}
        for test in dict.fromkeys(t for target in TARGETS for t in target.tests):
            shop.link(test, units)
            start = time.monotonic()
            ending, _ = shop.run(test, 0, 600)
            if ending != "passed":
                raise SystemExit(f"{test} {ending} without any mutant alive")
            limits[test] = 20 + 5 * (time.monotonic() - start)
        results = []
        for target, mutator, numbers in zip(TARGETS, mutators, chosen):
            for number in sorted(numbers):
                site, ending, by, noted = mutator.sites[number], "passed", "", ""
                for test in target.tests:
                    ending, notes = shop.run(test, number, limits[test])
                    noted += notes
                    if ending != "passed":
                        by = test
                        break
                if "v" in noted:
                    continue  # no such operator for these types
                results.append({**asdict(site), "ending": ending, "by": by, "reached": "r" in noted})
                say(
                    f"{len(results)}/{sum(map(len, chosen))} {site.key}: "
                    f"{'SURVIVED' if ending == 'passed' else ending + ' in ' + by}"
                )
    known.update({m["number"]: m for m in results})
    return {
        "sites": sum(len(m.sites) for m in mutators),
        "asked": asked,
        "seed": seed,
        "mutants": [known[n] for n in sorted(known)],
    }


def arguments() -> dict[str, str]:
    """survivors.txt: `path: expression -> change`, and below it, indented, why no test can or need notice."""
    out, key = {}, None
    for line in (Path(__file__).with_name("survivors.txt")).read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if not line.startswith(" "):
            key = line.strip()
            out[key] = ""
        else:
            out[key] = (out[key] + " " + line.strip()).strip()
    return out


def key_of(mutant: dict) -> str:
    return f"{mutant['path']}: {mutant['source']} -> {mutant['becomes']}"


def page(results: dict) -> str:
    mutants, argued = results["mutants"], arguments()
    survivors = [m for m in mutants if m["ending"] == "passed"]
    killed = len(mutants) - len(survivors)
    accepted = [m for m in survivors if key_of(m) in argued]
    out = [
        "# Mutation testing: would our own tests notice?",
        "",
        "Mutants of the code that says what is right: the algebra of layouts (offset and inverse), the oracle, the "
        "comparison of bytes and the checker that",
        "uses them. Operators, bounds and constants are exchanged, checks and statements left out; then the tests "
        "that are about the file run. A mutant is",
        "*killed* when a test fails, dies or does not end. Survivors are argued below: *equivalent* ones compute the "
        "same, the others are worth what is said.",
        "",
        "```text",
        f"mutants    {len(mutants)}, a sample of {results['sites']} places (seed {results['seed']})",
        f"killed     {killed} ({100 * killed / max(1, len(mutants)):.1f} %)",
        f"survived   {len(survivors)}, of them {len(accepted)} argued, {len(survivors) - len(accepted)} not",
        "```",
        "",
        "`harness/lab/mutation/mutation.py --build build --results mutation.json --page build/pages/mutation.md` does "
        "it again; `--sample 0` takes every place.",
        "",
        "| file | mutants | killed | survived |",
        "| --- | --- | --- | --- |",
    ]
    for path in dict.fromkeys(m["path"] for m in mutants):
        of = [m for m in mutants if m["path"] == path]
        dead = sum(m["ending"] != "passed" for m in of)
        out.append(f"| `{path}` | {len(of)} | {dead} | {len(of) - dead} |")
    out += ["", "| kind | mutants | killed | survived |", "| --- | --- | --- | --- |"]
    for kind in sorted({m["kind"] for m in mutants}):
        of = [m for m in mutants if m["kind"] == kind]
        dead = sum(m["ending"] != "passed" for m in of)
        out.append(f"| {kind} | {len(of)} | {dead} | {len(of) - dead} |")
    ways = Counter(m["ending"] for m in mutants if m["ending"] != "passed")
    out += [
        "",
        "Killed by: "
        + ", ".join(
            f"a test that {way.replace('died', 'dies').replace('failed', 'fails').replace('did', 'does')} {count}"
            for way, count in ways.most_common()
        )
        + ".",
        "",
        "## Survivors",
        "",
    ]
    for m in survivors:
        out.append(
            f"- `{m['path']}`, `{m['source']}`: {m['becomes']}{'' if m['reached'] else ' (no test reaches it)'}. "
            f"{argued.get(key_of(m), '**Not argued.**')}"
        )
    return "\n".join(out) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, help="build folder whose tests are linked with mutants")
    parser.add_argument("--sample", type=int, default=160, help="how many mutants; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="only what survived in --results, the same sources given")
    parser.add_argument("--results", type=Path, help="JSON, written with --build, else read")
    parser.add_argument("--page", type=Path, help="Markdown to write")
    args = parser.parse_args()
    if args.build is None and args.results is None:
        parser.error("expected --build or --results")
    if args.build is not None:
        before = json.loads(args.results.read_text()) if args.again else None
        results = run_all(args.build, args.sample, args.seed, lambda words: print(words, flush=True), before)
        if args.results:
            args.results.write_text(json.dumps(results, indent=1) + "\n")
    else:
        results = json.loads(args.results.read_text())
    if args.page:
        args.page.write_text(page(results))
    lacking = [m for m in results["mutants"] if m["ending"] == "passed" and key_of(m) not in arguments()]
    print(f"{len(results['mutants'])} mutants, {len(lacking)} survive without an argument")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
