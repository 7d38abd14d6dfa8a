"""Nothing run is never green: every way of not running a case, its status, its headline, and the effect of --require,
--allow-incomplete and a suite's `optional`. Plug-ins that cannot be loaded are failures; a machine that cannot be
queried is the suite's own error."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from kvtest import KVCTS, ROOT, finish, need_program, results

PAIR = "geometry: {base: small, layers: 1}\nproducer: {layout: vllm-fa-nhd}\n"


class Bench:
    """A catalogue of one's own, and runs with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases = folder / "cases"
        self.count = 0
        shutil.copytree(ROOT / "cases", self.cases)

    def add(self, kind: str, name: str, text: str) -> None:
        (self.cases / kind / f"{name}.yaml").write_text(text)

    def file(self, name: str, *cases: str) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text("---\n".join(f"case: mine/{name}-{i}\n{PAIR}{case}\n" for i, case in enumerate(cases)))
        return path

    def run(self, status: int, *argv: str, says: str = "", err: str = "", env: dict[str, str] | None = None) -> Path:
        """Runs; status, headline and results.json must agree. Returns the run's folder."""
        resumed = "--resume" in argv
        self.count += 1
        out = Path(argv[argv.index("--resume") + 1]) if resumed else self.folder / f"run{self.count}"
        where = [] if resumed else ["--out", str(out)]
        done = subprocess.run(
            [str(KVCTS), "--cases", str(self.cases), "run", *argv, *where],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **(env or {})},
        )
        shown = (
            f"kvcts run {' '.join(argv)}: {done.returncode}, expected {status}\n{done.stdout[-2000:]}{done.stderr[-1000:]}"
        )
        assert done.returncode == status, shown
        assert says in done.stdout and err in done.stderr, f"{says!r}, {err!r}: {shown}"
        if status != 3:
            report = json.loads((out / "results.json").read_text())
            assert report["exit_status"] == status and says in report["headline"], (
                report["exit_status"],
                report["headline"],
                says,
            )
            assert report["counts"]["incomplete"] == ("ncomplete" in report["headline"]), report["headline"]
        return out

    def not_running(self, name: str, require: str, lack: str, *argv: str, env: dict[str, str] | None = None) -> None:
        """One way of not running: incomplete, allowed to be, and a failure where it is required."""
        says = f"1 skipped: 1 {lack}"
        self.run(5, *argv, says="Incomplete (nothing run)", env=env)
        self.run(5, *argv, says=says, env=env)
        self.run(0, *argv, "--allow-incomplete", says="Incomplete (nothing run)", env=env)
        out = self.run(
            1, *argv, "--require", require, "--allow-incomplete", says="1 of 1 case did not end as expected", env=env
        )
        [only] = results(out)
        assert (only["outcome"], only["verdict"]) == ("SKIPPED", "unexpected") and "--require" in only["message"], (
            name,
            only,
        )


def lacks(bench: Bench) -> None:
    """A plug-in that is not there, a package that is not there, an engine that opens nothing, no environment, no memory."""
    bench.add("engines", "absent", "engine: absent\ntitle: not built\nplugin: kvcts_engine_absent\nprocesses: 2\n")
    bench.add(
        "engines",
        "unpacked",
        "engine: unpacked\ntitle: its package is not installed\nplugin: kvcts_engine_memcpy\nprocesses: 1\nneeds: "
        "[unpacked-1.0]\n",
    )
    bench.add(
        "connectors",
        "nowhere",
        "connector: nowhere\ntitle: its environment was never made\nkind: program\noptions: {command: "
        "['{python:nowhere}', '-']}\n",
    )
    bench.not_running("plug-in", "absent", "absent", "--file", str(bench.file("absent", "engine: absent")))
    for name in ("unpacked-1.0", "unpacked"):
        bench.not_running("package", name, "unpacked-1.0", "--file", str(bench.file("unpacked", "engine: unpacked")))
    late = bench.file("late", "engine: fixture\nengine_options: {fault: refuse, phase: open}")
    bench.not_running("open() says NOT_SUPPORTED", "fixture", "fixture", "--file", str(late))
    for name in ("nowhere", "own"):
        bench.not_running(
            "environment", name, "nowhere", "--file", str(bench.file("program", "connector: nowhere\nengine: own"))
        )
    vast = bench.file("vast", "engine: memcpy").read_text().replace("layers: 1", "layers: 1, blocks: 1000000000")
    (bench.folder / "vast.yaml").write_text(vast)
    for name in ("memory", "memcpy"):
        bench.not_running("memory", name, "memory", "--file", str(bench.folder / "vast.yaml"))


def unsupported(bench: Bench) -> None:
    """Declared constraints are part of the plan, but a run of nothing else ran nothing."""
    impossible = "kv/producer=vllm-flash-attn-0.22/arch=sm_70"
    bench.run(5, "--id", impossible, says="Incomplete (nothing run): 0 of 1 case ended as expected; 1 unsupported")
    bench.run(0, "--id", impossible, "--id", "kv/producer=vllm-fa-nhd", says="All 2 cases ended as expected")


def plans(bench: Bench) -> None:
    """A suite says which lacks it accepts; others stay incomplete, and so does a run of nothing at all."""
    block = "  - {title: t, axes: {producer: vllm-fa-nhd, engine: [%s]}}\n"
    for name, optional, engines, status, says in (
        ("strict", "", "memcpy, absent", 5, "Incomplete (50 % run): 1 of 2 cases ended as expected; 1 skipped: 1 absent"),
        ("lenient", "optional: [absent]\n", "memcpy, absent", 0, "1 case ended as expected; 1 skipped: 1 absent (optional)"),
        ("glob", "optional: ['abs*']\n", "memcpy, absent", 0, "1 skipped: 1 absent (optional)"),
        ("part", "optional: [absent]\n", "memcpy, absent, unpacked", 5, "Incomplete (33 % run)"),
        ("empty", "optional: [absent]\n", "absent", 5, "Incomplete (nothing run)"),
    ):
        bench.add("suites", name, f"suite: {name}\ntitle: t\n{optional}matrix:\n{block % engines}")
        bench.run(status, "--suite", name, says=says)
    bench.run(1, "--suite", "lenient", "--require", "absent", says="1 of 2 cases did not end as expected")
    # An id alone is in no suite: nothing is optional.
    bench.run(
        5, "--id", "kv/producer=vllm-fa-nhd", "--id", "kv/producer=vllm-fa-nhd/engine=absent", says="Incomplete (50 % run)"
    )


def loading(bench: Bench) -> None:
    """A plug-in that is there and cannot be loaded has failed, whatever the case expects."""
    for fault, outcome in (
        ("crash", "CRASH"),
        ("exit", "CRASH"),
        ("hang", "HANG"),
        ("null", "FAIL"),
        ("truncated", "FAIL"),
        ("no-poll", "FAIL"),
    ):
        bench.add(
            "engines",
            "loads",
            "engine: loads\ntitle: wrong when it is loaded\nplugin: kvcts_engine_hostile\nprocesses: 2\n"
            f"environment: {{KVCTS_HOSTILE_LOAD: '{fault}'}}\n",
        )
        file = bench.file("loads", "engine: loads", f"engine: loads\nexpected: {{outcome: {outcome}}}")
        for row in results(
            bench.run(1, "--file", str(file), "--allow-incomplete", says="2 of 2 cases did not end as expected")
        ):
            assert (row["outcome"], row["verdict"]) == (outcome, "unexpected") and "cannot be loaded" in row["message"], (
                fault,
                row,
            )
    folder = bench.folder / "plugins"
    folder.mkdir()
    (folder / "kvcts_engine_text.so").write_text("not a library")
    bench.add("engines", "text", "engine: text\ntitle: no library\nplugin: kvcts_engine_text\nprocesses: 2\n")
    bench.run(
        1,
        "--file",
        str(bench.file("text", "engine: text")),
        says="did not end as expected",
        env={"KVCTS_ENGINE_PATH": str(folder)},
    )


def budgets(bench: Bench) -> None:
    """What the estimates leave out is no part of the plan; what the clock leaves out is."""
    bench.run(0, "--suite", "history", "--budget", "0.3", "--allow-incomplete", says="left out by --budget")
    slow = "engine: fixture\nengine_options: {fault: sleep, phase: transfer, delay_us: 1500000}\ndeadlines: {transfer: 20s}"
    file = str(bench.file("slow", slow, slow + "\nseed: 5", slow + "\nseed: 7", slow + "\nseed: 9"))
    out = bench.run(5, "--file", file, "--budget", "1", says="not run: budget of 1 s used up")
    bench.run(0, "--resume", str(out), "--allow-incomplete", says="Incomplete (")
    required = bench.run(
        1,
        "--file",
        file,
        "--budget",
        "1",
        "--require",
        "fixture",
        "--allow-incomplete",
        says="did not end as expected; incomplete (",
    )
    assert {(r["outcome"], r["verdict"]) for r in results(required)} == {("PASS", "as expected"), ("NOT_RUN", "unexpected")}
    for folder in (out, required):
        for _ in range(4):  # each sitting has its own second, which is enough for one case at least
            done = subprocess.run(
                [str(KVCTS), "--cases", str(bench.cases), "run", "--resume", str(folder)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120,
            )
        assert done.returncode == 0 and len(results(folder)) == 4, done.stdout


def descriptors(bench: Bench) -> None:
    """Every combination of closed standard descriptors: the cases run. A closed standard output is an error, because
    what was to be printed is lost."""
    for closed in itertools.chain.from_iterable(itertools.combinations((0, 1, 2), n) for n in range(4)):
        out = bench.folder / ("closed" + "".join(map(str, closed)))
        redirections = " ".join(f"{fd}>&-" if fd else "<&-" for fd in closed)
        command = (
            f"exec '{KVCTS}' run --id kv/producer=vllm-fa-nhd --id kv/producer=vllm-fa-nhd/engine=shm --out "
            f"'{out}' {redirections}"
        )
        done = subprocess.run(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120
        )
        assert done.returncode == (3 if 1 in closed else 0), f"closed {closed}: {done.returncode} {done.stderr!r}"
        assert [r["outcome"] for r in results(out)] == ["PASS", "PASS"], f"closed {closed}"


def refused_fork(bench: Bench) -> None:
    """A machine on which no process can be made lacks nothing that a case needs: the suite's own error, and no results."""
    if os.geteuid() == 0:
        wrap = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if shutil.which("setpriv") is None:
            return
    else:
        wrap = []
    bench.folder.chmod(0o777)  # of the other user
    out = bench.folder / "refused"
    done = subprocess.run(
        [*wrap, "bash", "-c", f"ulimit -u 1; exec '{KVCTS}' run --suite seeds --out '{out}'"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1, (done.returncode, done.stdout, done.stderr)


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-complete-") as name:
        bench = Bench(Path(name))
        for part in (lacks, unsupported, plans, loading, budgets, descriptors, refused_fork):
            part(bench)
    print("lacks, plans, plug-ins that cannot be loaded, budgets, closed descriptors: none is green")
    return 0


if __name__ == "__main__":
    finish(main)
