"""Every verb notices output that cannot be written; a reader that closes the pipe is not an error; printed text cannot
steer a terminal."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from kvtest import KVCTS, expect, finish, kvcts, need_program

HANGS = (
    'case: loud/{0}\ntitle: "red \\e[31m and\\nanother line"\ngeometry: {{base: small, layers: 1}}\nproducer: '
    "{{layout: vllm-fa-nhd}}\n{1}\n"
)


def printing(folder: Path) -> list[list[str]]:
    """One command line of each verb that prints; none takes long."""
    run = str(folder / "run")
    return [
        ["--help"],
        ["--version"],
        ["list"],
        ["list", "--suite", "seeds"],
        ["list", "--suite", "seeds", "--json"],
        ["explain", "HANG"],
        ["explain", "HANG", "--json"],
        ["doctor", "--json"],
        ["schema", "case"],
        ["schema", "case", "--reference"],
        ["layouts"],
        ["layouts", "vllm-fa-nhd"],
        ["golden", "list"],
        ["golden", "show", "vllm-fa-nhd", "fp16"],
        ["describe", "7,2,16,4,64", "--dtype", "fp16"],
        ["report", run],
        ["report", run, "--json"],
        ["report", run, "--phases"],
        ["report", run, "--compat"],
        ["rules", "--list"],
        ["sabotage", "--list"],
        ["conformance", "memcpy"],
        ["check", "--producer", "vllm-fa-nhd", "--consumer", "vllm-fa-hnd"],
        ["repro", "kv/producer=vllm-fa-nhd"],
        ["repro", "kv/producer=vllm-fa-nhd", "--json"],
        ["dump", "kv/producer=vllm-fa-nhd"],
        ["run", "--id", "kv/producer=vllm-fa-nhd", "--out", str(folder / "console")],
    ]


def ended(arguments: list[str], out: str) -> tuple[int, str]:
    """Status and errors of `kvcts arguments` with its output going to `out`, as a shell would send it."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {out}', str(KVCTS), *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=300,
    )
    return done.returncode, done.stderr.decode(errors="replace")


def full_disk(folder: Path) -> None:
    for arguments in printing(folder):
        status, err = ended(arguments, ">/dev/full")
        words = f"kvcts {' '.join(arguments)} >/dev/full: status {status}: {err!r}"
        assert status == 3, words
        assert len(err.splitlines()) == 1 and "No space left on device" in err, words
    assert (folder / "console" / "results.json").exists(), "a run whose console is lost still writes its reports"
    for arguments in (["list", "--suite", "seeds"], ["explain", "HANG"]):
        status, err = ended(arguments, ">&-")
        assert status == 3 and len(err.splitlines()) == 1, (arguments, status, err)


def reader_that_goes_away() -> None:
    script = 'set -o pipefail; "$0" list --suite full | head -n 1'
    done = subprocess.run(["bash", "-c", script, str(KVCTS)], stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    assert done.returncode == 0 and not done.stderr and len(done.stdout.splitlines()) == 1, done


def safe(text: str, what: str) -> None:
    assert not any(ord(c) < 0x20 and c not in "\n\t" for c in text), f"{what} prints a control character: {text!r}"


def foreign_texts(folder: Path) -> None:
    """Titles of case files, error texts of plug-ins, arguments."""
    file = folder / "loud.yaml"
    file.write_text(HANGS.format("one", ""))
    for arguments in (
        ["repro", "loud/one", "--file", str(file)],
        ["run", "--file", str(file), "--out", str(folder / "loud")],
        ["list", "--file", str(file)],
    ):
        done = kvcts(*arguments)
        assert done.status == 0, done
        safe(done.out + done.err, " ".join(arguments))
    title = next(
        line for line in kvcts("repro", "loud/one", "--file", str(file)).out.splitlines() if line.startswith("title")
    )
    assert title.endswith("another line"), title
    for argument in ("a\nb", "a\x1b[31mb", "\u202eb", "a\rb"):
        for arguments in (
            ["list", "--id", argument],
            ["repro", argument],
            ["explain", argument],
            ["run", "--suite", argument],
            ["report", argument],
            ["layouts", argument],
            ["conformance", argument],
            ["sabotage", "--saboteur", argument],
            [argument],
        ):
            done = kvcts(*arguments)
            assert done.status in (2, 4), (arguments, done)
            assert len(done.err.splitlines()) == 1, f"one line was expected of {arguments}: {done.err!r}"
            safe(done.out + done.err, repr(arguments))
    done = kvcts("conformance", "fixture", "--option", "fault=\x1b[31mred\nand")  # the plug-in's own error quotes it
    safe(done.out + done.err, "conformance")
    assert done.status == 1 and "\\x1b[31m" in done.out and "red\\nand" in done.out, done


def ids_are_names(folder: Path) -> None:
    """An id is an argument and the name of a file somewhere."""
    for wrong in ("..", "../../../../tmp/x", "--help", "a/../b", "a/.b", "-x", "a/"):
        file = folder / "id.yaml"
        file.write_text(HANGS.format("x", "").replace("loud/x", f'"{wrong}"'))
        expect(2, "list", "--file", str(file), err="expected a case id")


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-output-") as name:
        folder = Path(name)
        expect(0, "run", "--suite", "seeds", "--out", str(folder / "run"))
        full_disk(folder)
        reader_that_goes_away()
        foreign_texts(folder)
        ids_are_names(folder)
    print("lost output is status 3 of every verb; nothing printed steers a terminal")
    return 0


if __name__ == "__main__":
    finish(main)
