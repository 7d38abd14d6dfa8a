"""reports/ci: every recipe parses, and its commands are carried out (the night's are looked at only); what is printed
for CI systems is of their form."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from kvtest import KVCTS, ROOT, expect, finish, need_program, results

try:
    import yaml
except ImportError:
    print("skipped: PyYAML is not installed (./run_suite.sh install)")
    sys.exit(77)

RECIPES = ROOT / "reports" / "ci"
VARIABLES = {"${{ matrix.part }}": "2", "$CI_NODE_INDEX": "2", "$CI_NODE_TOTAL": "3", "$BUILD_NUMBER": "ci"}
SAMPLE = re.compile(r'[a-z_]+\{[a-z_]+="(?:[^"\\]|\\.)*"(?:,[a-z_]+="(?:[^"\\]|\\.)*")*\} -?[0-9.]+')


def commands() -> list[str]:
    """Of all recipes, in their order, with what CI systems put in."""
    github = yaml.safe_load((RECIPES / "github.yml").read_text())
    gitlab = yaml.safe_load((RECIPES / "gitlab.yml").read_text())
    found = [step["run"] for job in github["jobs"].values() for step in job["steps"] if "run" in step]
    found += [line for job in gitlab.values() for key in ("script", "after_script") for line in job.get(key, [])]
    found += re.findall(r"sh '([^']+)'", (RECIPES / "Jenkinsfile").read_text())
    for variable, value in VARIABLES.items():
        found = [line.replace(variable, value) for line in found]
    wheel = yaml.safe_load((RECIPES / "wheel.yml").read_text())["jobs"]["wheel"]["steps"]
    assert [step["run"].split(" ", 1)[1] for step in wheel if "run_suite" in step.get("run", "")] == ["./run_suite.sh wheel"]
    assert len(found) >= 6 and not [line for line in found if "$" in line], found
    return found


def recipes(folder: Path) -> None:
    for line in commands():
        words = shlex.split(line.split(" > ")[0].removesuffix(" || true"))
        if words[1] == "nightly":
            asked = subprocess.run(
                [sys.executable, ROOT / "harness" / "python" / "suites.py", "--check", "--night", *words[2:]],
                capture_output=True,
                text=True,
                cwd=folder,
            )
            assert asked.returncode == 0, (line, asked.stderr)
            continue
        assert words[0] in ("./run_suite.sh", "build/bin/kvcts"), line
        if "--out" in words and (folder / words[words.index("--out") + 1]).exists():
            continue  # another recipe has run it
        ended = subprocess.run([KVCTS, *words[1:]], capture_output=True, text=True, cwd=folder, timeout=300)
        assert ended.returncode == 0, (line, ended)
    assert (folder / "runs/ci/junit.xml").exists(), "what the recipes keep"


def printed(folder: Path) -> None:
    file = folder / "wrong.yaml"
    file.write_text(
        "case: t/a\nproducer: {layout: vllm-fa-nhd}\nconsumer: {layout: vllm-fa-hnd, claim: {layout: vllm-fa-nhd}}\n---\n"
        "case: t/b\nproducer: {layout: vllm-fa-nhd}\nconsumer: {layout: vllm-fa-hnd}\n"
    )
    run = str(folder / "wrong")
    expect(1, "run", "--file", str(file), "--out", run)
    summary = folder / "summary.md"
    summary.write_text("before\n")
    os.environ["GITHUB_STEP_SUMMARY"] = str(summary)
    lines = expect(1, "report", run, "--for", "github").splitlines()
    del os.environ["GITHUB_STEP_SUMMARY"]
    assert (
        len(lines) == 2
        and re.fullmatch(r"::error title=FAIL axis-permuted[^:,]* \(1 case\)::.*%0A.*kvcts repro.*", lines[0])
        and lines[1].startswith("::notice title=kvcts ")
    ), lines
    markdown = summary.read_text()
    assert (
        markdown.startswith("before\n## kvcts ")
        and "\n| 1 | FAIL axis-permuted" in markdown
        and markdown.split("before\n")[1] == expect(1, "report", run, "--for", "markdown")
    ), markdown
    metrics = expect(1, "report", run, "--for", "openmetrics").splitlines()
    assert metrics[-1] == "# EOF" and all(line.startswith("# ") or SAMPLE.fullmatch(line) for line in metrics), metrics
    by_outcome = {
        found[1]: float(found[2])
        for found in (re.fullmatch(r'kvcts_cases\{.*outcome="(\w+)"\} (.+)', line) for line in metrics)
        if found
    }
    assert by_outcome["PASS"] == by_outcome["FAIL"] == 1 and sum(by_outcome.values()) == len(results(Path(run))) == 2, (
        by_outcome
    )
    assert any(line.startswith("kvcts_failures{") and line.endswith(" 1") for line in metrics)
    expect(2, "report", run, "--for", "teamcity", err="teamcity")
    expect(2, "report", run, "--for", "github", "--phases", err="--for prints one thing")


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts ci ") as place:
        printed(Path(place))
        recipes(Path(place))


if __name__ == "__main__":
    finish(main)
