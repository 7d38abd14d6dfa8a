"""Builds and runs tests of the project, prints where the time went, and stops itself hard after 60 minutes.

    selftest.py                    every test except the nightly ones
    selftest.py ROOM...            the tests of these rooms or parts of rooms (run, run/store, kernels, ...)
    selftest.py --changed [REV]    the quick tests of the rooms that differ from REV (default: main), the program's and
                                   suite seeds
    selftest.py --sanitized        every test, then unit and property tests again under ASan and UBSan
    selftest.py --nightly          what only a night has time for: the long versions of tests, the laboratory

Called by run_suite.sh. Standard library only: it must run before .venv exists. Each stage is one process group;
CTest writes JUnit, the source of the counts. The last line is "N passed, N failed", with ", N skipped" if something
was skipped. Exit status 0 only if nothing failed."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import build as building
import room_lines

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60 * 60


class TimeUp(Exception):
    """60 minutes are over."""


@dataclass
class Test:
    name: str
    seconds: float
    outcome: str  # "passed", "failed", "skipped"
    labels: list[str]
    text: str = ""


@dataclass
class Stage:
    title: str
    seconds: float = 0.0
    tests: list[Test] = field(default_factory=list)
    failure: str = ""  # the stage itself failed (a build, a crash of ctest)

    def count(self, outcome: str) -> int:
        return sum(t.outcome == outcome for t in self.tests) + (outcome == "failed" and bool(self.failure))


def read_junit(path: Path) -> list[Test]:
    """CTest's JUnit file -> tests. A test that did not run is skipped only if it reported so itself; any other is a
    failure."""
    tests = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        labels = [p.get("value", "") for p in case.iter("property") if p.get("name") == "cmake_labels"]
        status, skip = case.get("status"), case.find("skipped")
        said_so = skip is not None and "SKIP_" in skip.get("message", "")
        outcome = "passed" if status == "run" else "skipped" if said_so else "failed"
        out = case.findtext("system-out") or (skip.get("message", "") if skip is not None else "")
        tests.append(Test(case.get("name", "?"), float(case.get("time", 0)), outcome, ";".join(labels).split(";"), out))
    return tests


def reason_of_skip(test: Test) -> str:
    """The line in which a test explains why it did not run."""
    lines = [line.strip() for line in test.text.splitlines() if line.strip()]
    said = [line for line in lines if line.lower().startswith("skip") or "skipped:" in line.lower()]
    if not said:  # GoogleTest: the message stands on the line after "Skipped"
        said = [lines[i + 1] for i, line in enumerate(lines[:-1]) if line.endswith("Skipped")]
    return (said or ["no reason given"])[0][:200]


class SelfTest:
    def __init__(self, jobs: int, started: float):
        self.jobs, self.started, self.stages, self.process = jobs, started, [], None

    def run(self, argv: list[str], log: Path | None = None) -> int:
        """Runs in a separate process group, so that everything below it can be ended."""
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(log.open("w")) if log else None
            self.process = subprocess.Popen(
                argv,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out and subprocess.PIPE,
                stderr=out and subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            if out:
                building.follow(self.process.stdout, out)
            rc = self.process.wait()
        self.process = None
        return rc

    def end_process(self) -> None:
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @contextlib.contextmanager
    def stage(self, title: str):
        stage = Stage(title)
        self.stages.append(stage)
        print(f"== {title}", flush=True)
        begin = time.monotonic()
        try:
            yield stage
        except TimeUp:
            stage.failure = "stopped: 60 minutes are over"
            raise
        finally:
            stage.seconds = time.monotonic() - begin

    def build(self, preset: str, folder: str, *targets: str, options: tuple[str, ...] = ()) -> bool:
        with self.stage(f"build {folder} ({' '.join(targets)})") as stage:
            (ROOT / folder).mkdir(exist_ok=True)
            log = ROOT / folder / "self-test-build.log"
            steps = [["cmake", "--preset", preset, *options], building.command(preset, self.jobs, list(targets))]
            for argv in steps:
                if self.run(argv, log) != 0:
                    text = log.read_text(errors="replace").splitlines()
                    first = next(
                        (i for i, line in enumerate(text) if "error:" in line or "FAILED" in line or "CMake Error" in line),
                        -20,
                    )
                    print("\n".join(text[first:][:40]), flush=True)
                    stage.failure = f"'{' '.join(argv)}' failed; the whole output is in {log.relative_to(ROOT)}"
                    break
        return not stage.failure

    def ctest(self, title: str, folder: str, *selection: str, jobs: int | None = None) -> None:
        with self.stage(title) as stage:
            junit = ROOT / folder / "self-test-junit.xml"
            junit.unlink(missing_ok=True)
            log = ROOT / folder / "self-test-ctest.log"
            rc = self.run(
                [
                    "ctest",
                    "--test-dir",
                    str(ROOT / folder),
                    "-j",
                    str(jobs or self.jobs),
                    "--no-tests=error",
                    "--output-junit",
                    str(junit),
                    "--test-output-size-passed",
                    "4096",
                    "--test-output-size-failed",
                    "65536",
                    *selection,
                ],
                log,
            )
            if junit.exists():
                stage.tests = read_junit(junit)
            if not stage.tests or (rc != 0 and not stage.count("failed")):
                print("\n".join(log.read_text(errors="replace").splitlines()[-20:]), flush=True)
                stage.failure = f"ctest ended with {rc}; its output is in {log.relative_to(ROOT)}"
            for test in stage.tests:
                if test.outcome == "failed":
                    tail = "\n".join("    " + line for line in test.text.strip().splitlines()[-25:])
                    print(f"FAILED {test.name}\n{tail}", flush=True)

    def everything(self) -> None:
        if self.build("default", "build", "all"):
            self.ctest("tests", "build", "-LE", "nightly")

    def sanitized(self) -> None:
        if self.build("asan", "build-asan", "kvcts_sanitized_tests"):
            self.ctest(
                "tests under ASan and UBSan (unit, property)",
                "build-asan",
                "-L",
                "^(unit|property)$",
                "-LE",
                "python|nightly",
                "-E",
                r"^diagnose\..*(Families|Blind)",
            )  # one-minute searches; their components are tested without them

    def nightly(self) -> None:
        if self.build("default", "build", "all", options=("-DKVCTS_LAB=ON",)):
            self.ctest("tests of the night", "build", "-L", "nightly", jobs=1)

    def rooms(self, rooms: list[str], quick: bool) -> None:
        """Runs the tests of these rooms. quick: without slow ones, but with the program's own and suite seeds."""
        programs = test_programs()
        wanted = set(rooms) | ({"cli"} if quick else set())
        targets = sorted(
            {f"kvcts_test_{p}" for part, p in programs for r in wanted if part == r or part.startswith(r + "/")}
        )
        if not self.build("default", "build", "kvcts_programs", *targets):
            return
        if rooms:
            self.ctest(
                "tests of " + ", ".join(rooms),
                "build",
                "-L",
                f"^room:({'|'.join(map(re.escape, rooms))})(/|$)",
                "-LE",
                "nightly|slow|suite" if quick else "nightly",
                "-E",
                "_NOT_BUILT$",
            )
        if quick:
            self.ctest("program and suite seeds", "build", "-R", r"^(cli\.|suite\.seeds$)")

    def table(self) -> None:
        print("\nwhere the time went")
        print(f"  {'stage':<58}{'seconds':>9}{'passed':>8}{'failed':>8}{'skipped':>8}")
        for s in self.stages:
            print(f"  {s.title:<58}{s.seconds:>9.1f}{s.count('passed'):>8}{s.count('failed'):>8}{s.count('skipped'):>8}")
            by_label: dict[str, list[Test]] = {}
            for t in s.tests:
                by_label.setdefault(t.labels[0] or "(no label)", []).append(t)
            if len(by_label) > 1:
                for label, tests in sorted(by_label.items()):
                    print(
                        f"    {label + ', sum over parallel tests':<56}{sum(t.seconds for t in tests):>9.1f}"
                        + "".join(f"{sum(t.outcome == o for t in tests):>8}" for o in ("passed", "failed", "skipped"))
                    )
        print(f"  {'all, with installation':<58}{time.time() - self.started:>9.1f}")
        slowest = sorted((t for s in self.stages for t in s.tests), key=lambda t: -t.seconds)[:8]
        if slowest:
            print("slowest tests")
            for t in slowest:
                print(f"  {t.seconds:>8.1f}  {t.name}")
        skipped: dict[str, list[str]] = {}
        for s in self.stages:
            for t in s.tests:
                if t.outcome == "skipped":
                    skipped.setdefault(reason_of_skip(t), []).append(t.name)
        if skipped:
            print("skipped")
            for reason, names in skipped.items():
                print(f"  {len(names)} x {reason} ({names[0]}{', ...' if len(names) > 1 else ''})")
        failed = [t.name for s in self.stages for t in s.tests if t.outcome == "failed"] + [
            f"{s.title}: {s.failure}" for s in self.stages if s.failure
        ]
        if failed:
            print("failed")
            print("\n".join(f"  {name}" for name in failed))

    def summary(self) -> int:
        counts = {o: sum(s.count(o) for s in self.stages) for o in ("passed", "failed", "skipped")}
        skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
        print(f"\n{counts['passed']} passed, {counts['failed']} failed{skipped}", flush=True)
        return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


class Parser(argparse.ArgumentParser):
    """A wrong call is one line."""

    def error(self, message: str):
        print(f"self-test: {message}", file=sys.stderr)
        sys.exit(2)


def test_programs() -> set[tuple[str, str]]:
    """A room or part of one, and a test program with its gtests, as the CMakeLists.txt files declare them."""
    programs = set()
    for path in [
        *ROOT.glob("harness/**/CMakeLists.txt"),
        *ROOT.glob("kernels/**/CMakeLists.txt"),
        ROOT / "golden" / "CMakeLists.txt",
    ]:
        # None of the laboratory: its programs run at night.
        for program in re.findall(r"^\s*kvcts_test\((?!lab )(\w+)", path.read_text(), re.M):
            programs.add((room_of(path.relative_to(ROOT).as_posix()) or "", program))
    return programs


def all_rooms() -> list[str]:
    """Rooms, and their parts with separate tests: run, run/store."""
    folders = [
        *ROOT.glob("harness/*/"),
        *ROOT.glob("harness/*/*/"),
        *ROOT.glob("kernels/"),
        *ROOT.glob("kernels/*/"),
        ROOT / "golden",
    ]
    return sorted(
        f.relative_to(ROOT).as_posix().removeprefix("harness/") for f in folders if (f / "CMakeLists.txt").exists()
    )


def room_of(path: str) -> str | None:
    """The room whose tests cover a file: harness/scene/symbols.cpp -> scene, harness/run/store/db.cpp -> run/store.
    None: no particular one."""
    if path.startswith("cases/") and path.endswith((".yaml", ".json")):
        return "case/catalogue"
    if path.startswith("reports/templates/"):
        return "cli/report"
    folders = path.removeprefix("harness/").split("/")[:-1]
    rooms = all_rooms()
    return next((r for r in ("/".join(folders[:2]), folders[0] if folders else "") if r in rooms), None)


def changed_rooms(revision: str) -> list[str]:
    """The rooms of all files that differ from the revision, committed or not. Exits with 2 if git does not know the
    revision."""
    out = []
    for argv in (["diff", "--name-only", revision, "--"], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *argv], cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["git failed"])[0]
            print(f"self-test: --changed expects a revision of this checkout, found '{revision}' ({said})", file=sys.stderr)
            sys.exit(2)
        out += done.stdout.splitlines()
    return sorted({room for room in map(room_of, out) if room})


def main() -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    parser.add_argument("--changed", nargs="?", const="main", metavar="REV")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--nightly", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--started", type=float, default=time.time(), help="when the whole call began (seconds since the epoch)"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds after which everything is ended (tests of this script)"
    )
    args = parser.parse_args()
    if bool(args.rooms) + bool(args.changed) + args.sanitized + args.nightly > 1:
        parser.error("expected rooms, --changed, --sanitized or --nightly, found more than one of them")
    for room in args.rooms:
        if room not in all_rooms():
            parser.error(f"expected a room, found '{room}'; rooms are {', '.join(r for r in all_rooms() if '/' not in r)}")
    rooms = changed_rooms(args.changed) if args.changed else args.rooms
    if args.changed:
        most = room_lines.budgets()
        for room in sorted({room for room in most if room.removeprefix("harness/") in {r.split("/")[0] for r in rooms}}):
            print(f"room {room}: {room_lines.lines_of(room):,} of {most[room]:,} lines")

    def time_up(*_):
        raise TimeUp

    def interrupted(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, time_up)
    signal.signal(signal.SIGTERM, interrupted)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, args.started + args.limit - time.time()))
    test = SelfTest(args.jobs, args.started)
    try:
        if args.nightly:
            test.nightly()
        elif args.rooms or args.changed:
            test.rooms(rooms, quick=bool(args.changed))
        else:
            test.everything()
            if args.sanitized:
                test.sanitized()
    except TimeUp:
        test.end_process()
    except KeyboardInterrupt:
        test.end_process()
        return 130
    signal.setitimer(signal.ITIMER_REAL, 0)
    test.table()
    return test.summary()


if __name__ == "__main__":
    sys.exit(main())
