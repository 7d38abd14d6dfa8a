"""run --failed RUN: what ended otherwise than it should there, and nothing else. run --max-failures N."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from kvtest import expect, finish, need_program, results

CASE = (
    "case: mine/{0}\ngeometry: {{base: small, layers: {2}}}\nproducer: {{layout: vllm-fa-nhd}}\nengine: fixture\n"
    "engine_options: {{{1}}}\nexpected: PASS\n"
)
FINE, BAD = "claims: ''", "fault: flip_bit"


def case_file(path: Path, *options: str) -> str:
    path.write_text("---\n".join(CASE.format(n, one, 1 + n) for n, one in enumerate(options)))
    return str(path)


def ids(out: Path) -> list[str]:
    return [result["id"] for result in results(out)]


def failed(folder: Path) -> None:
    """Alone it needs no --file; it narrows as --id and --where do; a mended case leaves nothing."""
    file = case_file(folder / "cases.yaml", FINE, BAD, FINE, BAD, "fault: flip_bit, every: '2'")
    first, again, one, mended = (folder / name for name in ("first", "again", "one", "mended"))
    expect(1, "run", "--file", file, "-j", "1", "--repeat", "2", "--out", str(first))
    assert [r["outcome"] for r in results(first)] == ["PASS", "FAIL", "PASS", "FAIL", "FLAKY"], results(first)
    assert expect(0, "list", "--failed", str(first)).split() == ["mine/1", "mine/3", "mine/4"]
    expect(1, "run", "--failed", str(first), "-j", "1", "--out", str(again), says="failed in first: 3 cases")
    assert ids(again) == ["mine/1", "mine/3", "mine/4"]
    assert json.loads((again / "results.json").read_text())["run"]["selection"] == f"--failed '{first}'"
    expect(1, "run", "--failed", str(again), "--id", "*/3", "--where", "engine == fixture", "--out", str(one))
    assert ids(one) == ["mine/3"]
    expect(1, "run", "--resume", str(one))
    expect(4, "run", "--failed", str(first), "--where", "engine == memcpy", err="removed the last")
    expect(4, "run", "--suite", "smoke", "--failed", str(first), err=f"what failed in {first} removed the last")
    case_file(folder / "cases.yaml", *[FINE] * 5)
    expect(0, "run", "--failed", str(first), "--out", str(mended))
    expect(4, "run", "--failed", str(mended), err=f"nothing failed in {mended}")
    case_file(folder / "cases.yaml", *[FINE] * 3)
    expect(2, "list", "--failed", str(first), err=f"'mine/3' failed in {first}, but the catalogue no longer has it")
    expect(2, "list", "--failed", str(folder / "nowhere"), err="nowhere")


def max_failures(folder: Path) -> None:
    """What is in flight ends, the rest waits for --resume."""
    # A pass that was to fail: no diagnosis. Some twenty cases are begun before a result is final: memory is watched.
    cases = [
        CASE.format(n, FINE, f"{1 + n % 12}, blocks: {8 + n // 12}").replace("PASS", "FAIL" if n in (1, 3, 149) else "PASS")
        for n in range(150)
    ]
    (folder / "many.yaml").write_text("---\n".join(cases))
    file = str(folder / "many.yaml")
    out, whole = folder / "stopped", folder / "whole"
    reason = "stopped after 2 failures (--max-failures)"
    argv = ["run", "--file", file, "-j", "1", "--retry-failures", "1", "--max-failures"]
    text = expect(1, *argv, "2", "--out", str(out), says="2 of 150 cases did not end as expected; incomplete (")
    rest = [r["message"] for r in results(out) if r["outcome"] == "NOT_RUN"]
    assert len(rest) >= 80 and set(rest) == {reason}, rest
    assert text.endswith(f"; {len(rest)} not run: {reason}\n"), text
    assert not [r for r in results(out) if "tries" in r], "a run that stops retries nothing"
    # Counted anew: the one failure that is left is no reason to stop.
    text = expect(1, "run", "--resume", str(out), "--max-failures", "2", says="3 of 150 cases did not end as expected")
    assert "not run" not in text and "3 failed cases retried, once" in text, text
    text = expect(1, *argv, "3", "--out", str(whole), says="3 of 150 cases did not end as expected")
    assert "not run" not in text and "3 failed cases retried, once" in text, text
    expect(2, *argv, "0", err="--max-failures")


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-failed-") as name:
        folder = Path(name)
        failed(folder)
        max_failures(folder)


if __name__ == "__main__":
    finish(main)
