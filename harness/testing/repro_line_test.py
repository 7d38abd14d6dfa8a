"""Every printed repro line runs as pasted, and brings the failure back: cases of a file, another catalogue, an engine
outside of the tree, a seed, a resumed run, a case that fails only after another one in its worker."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import xml.etree.ElementTree as xml
from pathlib import Path

from kvtest import BUILD, KVCTS, MARK, ROOT, command, finish, kvcts, marked_processes, need_program, results

ENGINES = BUILD / "harness" / "engines" / "example"
ENTRY = "engine: bounce\ntitle: a detour\nplugin: kvcts_engine_bounce\nprocesses: 1\n"
HEAD = (
    "case: paste/{0}\ngeometry: {{base: small, layers: 1}}\nproducer: {{layout: {1}}}\nconsumer: {{layout: "
    "flashinfer-nhd}}\n{2}\n"
)
CASES = "---\n".join(
    [
        HEAD.format("slow", "flashinfer-nhd", "engine: fixture\nengine_options: {fault: spin}\ndeadlines: {transfer: 3s}"),
        HEAD.format("label", "mine-heads-first, claim: {layout: flashinfer-nhd}", "engine: bounce\ndtype: fp16"),
        HEAD.format(
            "crash",
            "flashinfer-nhd",
            "engine: fixture\nengine_options: {fault: segv}\ncontrols: [{name: early, set: {engine_options: {phase: "
            "register}}}]",
        ),
        HEAD.format(
            "stale",
            "flashinfer-nhd",
            "op: read\nengine: hostile\nengine_options: {mode: stale}\ncontrols: [{name: next, set: {producer: {layout: "
            "vllm-fa-hnd}}}]",
        ),
    ]
)
LAYOUT = (
    'layout: mine-heads-first\ntitle: heads outermost\ntemplate: "L x B K H N C"\ndtypes: [fp16]\nsource: '
    '[{project: mine, version: "1", file: docs, how: read}]\n'
)


def catalogue(folder: Path) -> Path:
    cases = folder / "its cases"
    shutil.copytree(ROOT / "cases", cases)
    (cases / "engines" / "bounce.yaml").write_text(ENTRY)
    (cases / "layouts" / "mine-heads-first.yaml").write_text(LAYOUT)
    return cases


def bare() -> dict[str, str]:
    """The environment of a shell into which a line is pasted: the program, and none of the suite's variables."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KVCTS_")}
    return {**kept, "PATH": f"{KVCTS.parent}:{kept.get('PATH', '')}"}


def printed(run: Path, console: str) -> dict[str, set[str]]:
    """Every repro line of a run, by where it stands."""
    lines = {
        "console": {line.strip() for line in console.splitlines() if re.match(r"\s+(KVCTS_\w+=.* )?kvcts .*\brepro ", line)}
    }
    texts = [node.text or "" for node in xml.parse(run / "junit.xml").iter("failure")]
    lines["junit.xml"] = {
        line.removeprefix("again: ") for text in texts for line in text.splitlines() if line.startswith("again: ")
    }
    lines["results.json"] = {r["facts"]["repro"] for r in results(run)}
    page = (run / "index.html").read_text()
    lines["index.html"] = {html.unescape(m) for m in re.findall(r'<pre class="copy">(.*?)</pre>', page, re.S)}
    before, after, as_run = json.loads(re.search(r'"repro":(\[.*?\])', page)[1])
    lines["script of index.html"] = {
        f"{before}'{r['id']}'{after}{as_run if 'alone' in r['facts'] else ''}" for r in results(run)
    }
    return lines


def paste(run: Path, console: str, there: Path) -> int:
    """Executes every line, in another folder, and compares how it ends with what the run has."""
    known = {r["id"]: r for r in results(run)}
    where: dict[str, list[str]] = {}
    for place, lines in printed(run, console).items():
        assert lines, f"{place} has no repro line"
        for line in lines:
            where.setdefault(line, []).append(place)
    for line, places in where.items():
        done = subprocess.run(
            ["sh", "-c", line], cwd=there, env=bare(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
        words = f"{line} (of {', '.join(places)}) ended with {done.returncode}: {done.stderr}{done.stdout[-800:]}"
        case = re.search(r"^case +(\S+)$", done.stdout, re.M)
        assert case and case[1] in known, words
        then = known[case[1]]
        outcome = re.search(r"^outcome +(.*) \((?:modelled|executed on this CPU)\)$", done.stdout, re.M)
        assert outcome and outcome[1].split()[0] == then["outcome"], f"{words}\nthen: {then['outcome']}"
        assert then.get("diagnosis", {}).get("class", "") in outcome[1], f"{words}\nthen: {then.get('diagnosis')}"
        assert f"seed {then['seed']}," in done.stdout, words
        assert done.returncode == (0 if then["verdict"] == "as expected" else 1), words
    return len(where)


def begin_and_interrupt(folder: Path, out: Path) -> None:
    """A run that is stopped in its first case, begun with names of its own folder."""
    mark = uuid.uuid4().hex
    environment = {**bare(), "KVCTS_ENGINE_PATH": "plug ins", MARK: mark}
    process = subprocess.Popen(
        [
            str(KVCTS),
            "--cases",
            "its cases",
            "run",
            "--file",
            "cases of mine.yaml",
            "--seed",
            "77",
            "-j",
            "1",
            "--out",
            str(out),
        ],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while not any("kvcts-worker" in command(p) for p in marked_processes(mark)) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, process.returncode


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-paste-") as name:
        folder, there = Path(name) / "it's here", Path(name) / "elsewhere"
        folder.mkdir(), there.mkdir()
        catalogue(folder)
        shutil.copytree(ENGINES, folder / "plug ins")
        (folder / "cases of mine.yaml").write_text(CASES)
        out = there / "run"
        begin_and_interrupt(folder, out)
        # A resumed run keeps what it began with, and nothing else.
        other = kvcts("run", "--resume", str(out), cwd=there, env={**bare(), "KVCTS_ENGINE_PATH": str(there)})
        assert other.status == 2 and "KVCTS_ENGINE_PATH" in other.err and len(other.err.splitlines()) == 1, other
        resumed = kvcts("run", "--resume", str(out), "-j", "1", cwd=there, env=bare())
        assert resumed.status == 1, resumed
        kinds = {(r["id"], r["outcome"]) for r in results(out)}
        assert kinds == {
            ("paste/slow", "HANG"),
            ("paste/label", "FAIL"),
            ("paste/crash", "CRASH"),
            ("paste/crash#early", "CRASH"),
            ("paste/stale", "PASS"),
            ("paste/stale#next", "FAIL"),
        }, kinds
        next_one = next(r for r in results(out) if r["id"] == "paste/stale#next")
        assert next_one["message"].startswith("depends on what ran before it in the worker"), next_one
        assert next_one["facts"]["repro"].endswith("--as-run"), next_one["facts"]
        line = next_one["facts"]["repro"].removesuffix(" --as-run")
        alone = subprocess.run(["sh", "-c", line], cwd=there, env=bare(), capture_output=True, text=True)
        assert alone.returncode == 0 and "--as-run runs them first" in alone.stdout, alone
        lines = paste(out, resumed.out, there)
        later = kvcts("report", str(out), cwd=folder, env=bare())
        assert printed(out, later.out)["console"] == printed(out, resumed.out)["console"], later.out
        # Nothing was given: nothing is added.
        plain = kvcts("run", "--suite", "seeds", "--out", str(there / "plain"), env=bare())
        assert plain.status == 0 and {r["facts"]["repro"] for r in results(there / "plain")} == {
            f"kvcts repro '{r['id']}'" for r in results(there / "plain")
        }
    print(f"{lines} repro lines ran as they were printed")
    return 0


if __name__ == "__main__":
    finish(main)
