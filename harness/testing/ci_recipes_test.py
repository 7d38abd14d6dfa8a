"""reports/ci: every recipe is valid by its service's schema, and all of its shell lines are run in the service's order: a
change and two nights, with a small suite instead of the night's. What is printed for CI systems is of their form."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import slurm
from kvtest import BUILD, ROOT, expect, finish, need_program, results

try:
    import yaml
except ImportError:
    print("skipped: PyYAML is not installed (./run_suite.sh install)")
    sys.exit(77)

RECIPES = ROOT / "reports" / "ci"
SAMPLE = re.compile(r'[a-z_]+\{[a-z_]+="(?:[^"\\]|\\.)*"(?:,[a-z_]+="(?:[^"\\]|\\.)*")*\} -?[0-9.]+')
SCHEMAS = {
    "github.yml": "github-workflows",
    "wheel.yml": "github-workflows",
    "gitlab.yml": "gitlab-ci",
    "buildkite.yml": "buildkite",
}

# Judges options by the real script; runs the night by the real suites.py, without its long tests. The suite is history,
# which takes a second and has cases that fail as they should.
RUN_SUITE = f"""#!/bin/bash
options=()
while [[ ${{1:-}} == -* ]]; do
  options+=("$1"); [[ $1 != --with && $1 != --jobs ]] || {{ options+=("$2"); shift; }}; shift
done
"{ROOT}/run_suite.sh" "${{options[@]}}" --help > /dev/null || exit
if [[ $1 != nightly ]]; then
  for word; do [[ $word != smoke ]] || word=history; words+=("$word"); done
  exec build/bin/kvcts "${{words[@]}}"
fi
shift
exec "{sys.executable}" night.py --night --jobs 1 "$@"
"""
NIGHT = f"""import sys
from pathlib import Path
sys.path.insert(0, "{ROOT}/harness/python")
import suites
suites.ROOT, suites.KVCTS, suites.NIGHT = Path.cwd(), Path.cwd() / "build/bin/kvcts", ["history"]
sys.exit(suites.main())
"""
STAND_INS = {
    "run_suite.sh": RUN_SUITE,
    "night.py": NIGHT,
    "harness/python/selftest.py": "",
    "bin/apt-get": "#!/bin/sh\n[ $1 = update ] || [ $1 = install ]\n",
    # Downloads find what the parts left in the same folder. An annotation needs text.
    "bin/buildkite-agent": "#!/bin/sh\n[ $1 = annotate ] || exit 0\ngrep -q kvcts && echo annotated\n",
}


class Service:
    """A checkout on one machine after the other, and what the service keeps: artefacts of a night, caches between nights."""

    def __init__(self, folder: Path):
        self.folder, self.kept, self.artefacts = folder / "kv-cts", folder / "kept", folder / "artefacts"
        self.printed = ""
        for name, text in STAND_INS.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        (self.folder / "build").symlink_to(BUILD)
        (self.folder / "reports").symlink_to(ROOT / "reports")

    def machine(self) -> None:
        """Another one, with a fresh checkout."""
        shutil.rmtree(self.folder / "runs", ignore_errors=True)

    def sh(self, script: str, shell: list[str], env: dict[str, str], cwd: Path | None = None) -> None:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        ended = subprocess.run(
            [*shell, script], cwd=cwd or self.folder, env=os.environ | {"PATH": path, "CI": "true"} | env,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert ended.returncode == 0, (script, ended.returncode, ended.stdout[-2000:], ended.stderr[-2000:])
        self.printed += ended.stdout

    def move(self, patterns: list[str], to: Path, must: bool = True) -> None:
        """Into an artefact or a cache, with paths as they are in the checkout."""
        for pattern in patterns:
            found = sorted(self.folder.glob(pattern.removesuffix("/*") if pattern.endswith("**/*") else pattern))
            assert found or not must, f"the recipe keeps {pattern}, and nothing is there"
            for one in found:
                goal = to / one.relative_to(self.folder)
                shutil.rmtree(goal, ignore_errors=True)
                goal.parent.mkdir(parents=True, exist_ok=True)
                if one.is_dir():
                    shutil.copytree(one, goal, symlinks=True, dirs_exist_ok=True)
                else:
                    shutil.copy(one, goal)

    def back(self, place: Path) -> None:
        if place.exists():
            shutil.copytree(place, self.folder, symlinks=True, dirs_exist_ok=True)


def github(service: Service, event: str, number: int) -> None:
    """The jobs of an event in their order; expressions are those that the recipe uses."""
    summary, variables = service.folder / "summary.md", service.folder / "variables"
    summary.write_text("")
    shutil.rmtree(service.artefacts, ignore_errors=True)
    for job in yaml.safe_load((RECIPES / "github.yml").read_text())["jobs"].values():
        if event not in job.get("if", "always() && 'schedule'"):
            continue
        assert job["container"]["image"] == "debian:12" and job["timeout-minutes"] > 0, (
            "a runner that is tested, and a limit"
        )
        for part in job.get("strategy", {}).get("matrix", {}).get("part", [0]):
            service.machine()
            variables.write_text("")
            for step in job["steps"]:
                uses, given = step.get("uses", "").split("@")[0], step.get("with", {})
                name, kept = (
                    given.get("name", "").replace("${{ matrix.part }}", str(part)),
                    given.get("path", "").split("\n"),
                )
                if "run" in step:
                    line = step["run"].replace("${{ matrix.part }}", str(part))
                    env = dict(one.split("=", 1) for one in variables.read_text().splitlines())
                    assert "${{" not in line, line
                    service.sh(
                        line, ["sh", "-ec"], env | {"GITHUB_ENV": str(variables), "GITHUB_STEP_SUMMARY": str(summary)}
                    )
                elif uses == "actions/upload-artifact":
                    service.move(kept, service.artefacts / name)
                elif uses == "actions/download-artifact":
                    for one in service.artefacts.glob(given["pattern"]):
                        shutil.copytree(one / "runs/night", service.folder / kept[0] / one.name)
                elif uses == "actions/cache/save":
                    service.move(kept, service.kept)
                elif uses == "actions/cache/restore" and kept == ["runs/kept"]:
                    service.back(service.kept)
                else:
                    assert uses == "actions/checkout" or kept[0] in (".venv", "build/ccache"), step
    assert "## kvcts history" in summary.read_text() or event != "schedule", summary.read_text()


def gitlab(service: Service, event: str, number: int) -> None:
    recipe = yaml.safe_load((RECIPES / "gitlab.yml").read_text())
    stages = recipe["stages"]
    jobs = [recipe[job["extends"]] | job for job in recipe.values() if isinstance(job, dict) and "extends" in job]
    shutil.rmtree(service.artefacts, ignore_errors=True)
    for job in sorted(jobs, key=lambda job: stages.index(job["stage"])):
        if f'"{event}"' not in job["rules"][0]["if"]:
            continue
        assert job["image"] == "debian:12" and job["timeout"]
        caches = [
            one
            for one in (job["cache"] if isinstance(job["cache"], list) else [job["cache"]])
            if "runs/kept" in one["paths"]
        ]
        earlier = service.artefacts.with_name("earlier")
        shutil.rmtree(earlier, ignore_errors=True)
        if service.artefacts.exists():
            shutil.copytree(service.artefacts, earlier)
        for index in range(1, job.get("parallel", 1) + 1):
            service.machine()
            service.back(earlier)
            if caches:
                service.back(service.kept)
            env = {"CI_NODE_INDEX": str(index), "CI_NODE_TOTAL": str(job.get("parallel", 1))}
            service.sh("\n".join(job["script"]), ["bash", "-eo", "pipefail", "-c"], env)
            service.sh("\n".join(job.get("after_script", [])), ["bash", "-c"], env)
            reports = job.get("artifacts", {}).get("reports", {})
            service.move([*job.get("artifacts", {}).get("paths", []), *reports.values()], service.artefacts)
            for cache in caches:
                service.move(cache["paths"], service.kept)


def jenkins(service: Service, event: str, number: int) -> None:
    """One agent, whose workspace stays."""
    recipe = (RECIPES / "Jenkinsfile").read_text()
    assert "timeout(" in recipe and "buildDiscarder(" in recipe
    stage = recipe.split("stage('night')")[event == "schedule"]
    script = re.search(r"sh '''(.*?)'''|sh '([^'\n]*)'", stage, re.S)
    service.sh(script[1] or script[2], ["sh", "-xec"], {"BUILD_NUMBER": str(number)})
    kept = re.findall(r'(?:junit|archiveArtifacts) "([^"]+)"', stage)
    assert len(kept) == 2
    shutil.rmtree(service.artefacts, ignore_errors=True)
    service.move(", ".join(kept).replace("${env.BUILD_NUMBER}", str(number)).split(", "), service.artefacts)


def buildkite(service: Service, event: str, number: int) -> None:
    """Agents whose checkouts keep what git ignores; here, all are one."""
    for step in yaml.safe_load((RECIPES / "buildkite.yml").read_text())["steps"]:
        if ("==" in step["if"]) != (event == "schedule"):
            continue
        assert step["timeout_in_minutes"] > 0

        def uploaded(text: str) -> str:  # by `buildkite-agent pipeline upload`
            return text.replace("$BUILDKITE_BUILD_NUMBER", str(number)).replace("$$", "$")

        for job in range(step.get("parallelism", 1)):
            env = {"BUILDKITE_PARALLEL_JOB": str(job), "BUILDKITE_PARALLEL_JOB_COUNT": str(step.get("parallelism", 1))}
            service.sh(uploaded("\n".join(step["commands"])), ["bash", "-ec"], env)
            service.move(uploaded(step["artifact_paths"]).split(";"), service.artefacts)
    assert "annotated" in service.printed


def cron(service: Service, event: str, number: int) -> None:
    """A machine that stays. cron ends a command at %, unless it is escaped, and starts in the home folder."""
    lines = [line for line in (RECIPES / "nightly.cron").read_text().splitlines() if not line.startswith("#")]
    env = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
    entries = [re.fullmatch(r"\d+ \d+ \* \* \* (.*)", line) for line in lines if not re.match(r"[A-Z_]+=", line)]
    assert len(entries) == 2 and all(entries), lines
    for entry in entries if event == "schedule" else []:
        command = re.split(r"(?<!\\)%", entry[1])[0].replace("\\%", "%")
        service.sh(command, [env["SHELL"], "-c"], env | {"CI": ""}, service.folder.parent)
        time.sleep(1)  # the next night's folder has another name


def sbatch(service: Service, event: str, number: int) -> None:
    """A cluster whose nodes see the checkout."""
    if event == "schedule":
        with tempfile.TemporaryDirectory(prefix="kvcts") as folder, slurm.cluster(folder) as fleet:
            words = ["sbatch", "--wait", "--nodes=2", str(RECIPES / "slurm.sbatch")]
            ended = fleet.run(*words, cwd=service.folder, timeout=300)
        said = max(service.folder.glob("runs/night-*.txt"), key=lambda file: file.stat().st_mtime).read_text()
        assert ended.returncode == 0 and "shards, 0 running" in said, (ended, said[-2000:])
        service.printed += said


def recipe(run: Callable[[Service, str, int], None], change: str, folder: Path) -> None:
    """A change and two nights: the second one knows the first one's results."""
    service = Service(folder)
    run(service, change, 1)
    for night in (2, 3):
        service.printed = ""
        run(service, "schedule", night)
    (history,) = [one for one in service.folder.rglob("runs/**/history.db")]
    shown = json.loads(expect(0, "history", "show", "history/2025-dynamo-patch", "--history", str(history), "--json"))
    assert len(shown["points"]) == 2, (run.__name__, shown)
    page = max(service.folder.rglob("runs/**/history/index.html"), key=lambda file: file.stat().st_mtime).read_text()
    assert '<h2 id="nights">' in page, (run.__name__, service.printed[-2000:])


def schemas(folder: Path) -> None:
    """What the services publish, as check-jsonschema carries it; the check itself fails for a wrong key."""
    program = Path(sys.executable).with_name("check-jsonschema")
    if not program.exists():
        print("schemas: not checked, check-jsonschema is not installed (./run_suite.sh install)")
        return
    for name, schema in SCHEMAS.items():
        text = (RECIPES / name).read_text()
        wrong = folder / name
        wrong.write_text(re.sub(r"timeout-minutes|\bparallel\b|artifact_paths", "wrong_key", text))
        for file, status in ((RECIPES / name, 0), (wrong, 1)):
            ended = subprocess.run(
                [program, "--builtin-schema", f"vendor.{schema}", file], capture_output=True, text=True, timeout=120
            )
            assert ended.returncode == status, (file, ended.stdout[-3000:])


def red_nights(folder: Path) -> None:
    """A night with an unexpected failure ends with 1; one that lost a part, with 3; one without any part, with 2."""
    service = Service(folder)
    for part in ("1/2", "2/2"):
        wrong = f"--suite history --file '{folder.parent}/wrong.yaml'"
        service.sh(
            f"./run_suite.sh run {wrong} --shard {part} --out runs/red-{part[0]}/wrong; test $? -le 1", ["sh", "-c"], {}
        )
    for parts, status, says in (
        ("red-*", 1, "1 of 16 cases did not"),
        ("red-1", 3, "shard 2 of 2 is missing"),
        ("none-*", 2, "all parts"),
    ):
        script = f"reports/ci/join-night.sh runs/kept runs/{parts} > said 2>&1; test $? = {status} && grep '{says}' said"
        service.sh(script, ["sh", "-c"], {})


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
    wheel = yaml.safe_load((RECIPES / "wheel.yml").read_text())["jobs"]["wheel"]["steps"]
    assert [step["run"].split(" ", 1)[1] for step in wheel if "run_suite" in step.get("run", "")] == ["./run_suite.sh wheel"]
    assert {file.name for file in RECIPES.iterdir()} == {
        *SCHEMAS,
        "Jenkinsfile",
        "nightly.cron",
        "slurm.sbatch",
        "join-night.sh",
    }
    with tempfile.TemporaryDirectory(prefix="kvcts ci ") as name:
        place = Path(name)
        printed(place)
        schemas(place)
        red_nights(place / "red")
        changes = {github: "pull_request", gitlab: "merge_request_event", jenkins: "scm", buildkite: "webhook", cron: ""}
        if lack := slurm.lacking():
            print(f"sbatch: not run, {lack}")
        else:
            changes[sbatch] = ""
        for run, change in changes.items():
            began = time.monotonic()
            recipe(run, change, place / run.__name__)
            print(f"{run.__name__}: a change and two nights in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    finish(main)
