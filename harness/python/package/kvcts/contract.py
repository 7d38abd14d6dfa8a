"""pytest --kvcts-connector MODULE:CLASS: every case of suite contract is a test of that class. --kvcts-store MODULE:CLASS:
every case of suite store.

The program kvcts runs them all at once when the first is asked for. A case that ends as expected passes. What the class
declines is SKIPPED with its words: it raises before a transfer, says that nothing can be loaded, or reports that a load has
failed. Everything else fails with what happened, the cause, and a line that runs the case again."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any, Optional

import pytest

from .paths import prefix

SUITES = {"connector": "contract", "store": "store"}
ALWAYS = ("contract/whole-blocks", "store/put-get")  # what no class may decline
TOLD = ("Refusal: ", "requests [", "load errors of blocks ")  # a miss, or a failed load that the class reports as such
BEFORE_TRANSFER = ("resolve", "allocate", "generate", "register", "plan")


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvcts", "conformance of a KV connector")
    group.addoption("--kvcts-connector", metavar="MODULE:CLASS", help="test this class of vLLM's connector interface")
    group.addoption("--kvcts-store", metavar="MODULE:CLASS", help="test this class, a key-value store of pages")
    group.addoption(
        "--kvcts-extra",
        metavar="JSON",
        help="keys of its kv_connector_extra_config; {folder} in it is a folder of the case's, for both sides (default: "
        '{"shared_storage_path": "{folder}"})',
    )
    group.addoption(
        "--kvcts-jobs",
        metavar="N",
        type=int,
        help="cases in parallel (default: one a CPU; with vLLM, whose engines poll, a half)",
    )


def locate(option: str, subject: str, folders: list[str]) -> str:
    """FOLDER:MODULE:CLASS, with the folder from which Python imports the module."""
    module, colon, name = subject.partition(":")
    if not colon or not module or not name.isidentifier():
        raise pytest.UsageError(f"{option} expects MODULE:CLASS, found {subject!r}")
    top = module.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(top, folders)
    if spec is None:
        raise pytest.UsageError(f"{option}: there is no module {top} in {', '.join(folders)}")
    place = Path(spec.origin).parent if spec.origin and not spec.submodule_search_locations else None
    return f"{place or Path(next(iter(spec.submodule_search_locations))).parent}:{subject}"


class Failed(Exception):
    """A case that did not end as expected; str() is its report."""


class Case(pytest.Item):
    contract: Contract

    @classmethod
    def of(cls, parent: pytest.Collector, name: str, contract: Contract) -> Case:
        item = cls.from_parent(parent, name=name)
        item.contract = contract
        return item

    def runtest(self) -> None:
        result, report = self.contract.result(self.name)
        for kept in result.get("evidence_files", []):
            if kept["kind"].startswith(("stdout", "stderr")):
                self.add_report_section("call", kept["kind"], kept["text"])
        outcome, message = result["outcome"], result.get("message") or ""
        if outcome in ("SKIPPED", "UNSUPPORTED", "NOT_RUN"):
            pytest.skip(message)
        if result["verdict"] != "unexpected":
            return
        declined = message.startswith(TOLD) or result.get("phase") in BEFORE_TRANSFER
        if outcome == "REFUSED" and declined and self.name not in ALWAYS:
            pytest.skip(message.removeprefix("Refusal: "))
        expected = " or ".join(one["outcome"] for one in result["expected"])
        what = report.rstrip() or message or f"ended {outcome}, expected {expected}"
        raise Failed(f"{what}\nthe case: {result['facts'].get('title', self.name)}\n")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Failed) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, Optional[int], str]:
        return self.path, None, self.name


class Contract:
    """The plug-in of one session: its cases, and their results."""

    def __init__(self, config: pytest.Config):
        self.config = config
        here = [str(config.invocation_params.dir), str(config.rootpath), str(config.rootpath / "src")]
        self.environment = {**os.environ, "KVCTS_ENTRY_PYTHON": sys.executable}
        self.suites = []
        for kind, suite in SUITES.items():
            if subject := config.getoption(f"kvcts_{kind}"):
                self.environment[f"KVCTS_{kind.upper()}"] = locate(f"--kvcts-{kind}", subject, [*here, *sys.path])
                self.suites += ["--suite", suite]
        if extra := config.getoption("kvcts_extra"):
            try:
                json.loads(extra)
            except ValueError as error:
                raise pytest.UsageError(f"--kvcts-extra expects a JSON object: {error}") from None
            self.environment["KVCTS_CONNECTOR_EXTRA"] = extra
        if config.args_source != pytest.Config.ArgsSource.ARGS:
            config.args = []  # the contract alone, unless files are named
        self.session: Optional[pytest.Session] = None
        self.results: Optional[dict[str, tuple[dict[str, Any], str]]] = None

    def program(self, *argv: str) -> subprocess.CompletedProcess[str]:
        kvcts = prefix() / "bin" / "kvcts"
        try:
            return subprocess.run([kvcts, *argv], env=self.environment, capture_output=True, text=True, check=False)
        except OSError as error:
            raise pytest.UsageError(f"expected the program {kvcts}: {error.strerror}") from None

    @pytest.hookimpl(tryfirst=True)  # before -k and -m choose
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        self.session = session
        listed = self.program("list", *self.suites)
        if listed.returncode != 0:
            raise pytest.UsageError(listed.stderr.strip())
        items.extend(Case.of(session, name, self) for name in listed.stdout.splitlines())

    def result(self, name: str) -> tuple[dict[str, Any], str]:
        """Of one case: as in results.json, and the text of its failure."""
        if self.results is None:
            self.results = self.run([item.name for item in self.session.items if isinstance(item, Case)])
        return self.results[name]

    def run(self, names: list[str]) -> dict[str, tuple[dict[str, Any], str]]:
        with tempfile.TemporaryDirectory(prefix="kvcts-contract-") as folder:
            chosen = [word for name in names for word in ("--id", name)]
            polls = 2 if importlib.util.find_spec("vllm") else 1
            jobs = self.config.getoption("kvcts_jobs") or max(1, (os.cpu_count() or 1) // polls)
            done = self.program("run", *self.suites, *chosen, "-j", str(jobs), "--out", f"{folder}/run")
            if not Path(folder, "run", "results.json").exists():
                pytest.exit(f"kvcts run ended with {done.returncode}: {done.stderr.strip()}", returncode=3)
            results = json.loads(Path(folder, "run", "results.json").read_text())["results"]
            reports = {
                case.get("name"): failure.text or ""
                for case in xml.parse(Path(folder, "run", "junit.xml")).iter("testcase")
                if (failure := case.find("failure")) is not None
            }
        return {one["id"]: (one, reports.get(one["id"], "")) for one in results}
