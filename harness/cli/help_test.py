"""The program describes itself: every verb has a help text with an example and exit statuses, former names still work,
misspelt verbs and options name their neighbour, completions complete, the man page formats, and the table of environment
variables is the whole truth."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testing"))
from kvtest import BUILD, KVCTS, ROOT, expect, finish, kvcts, need_program

FORMER = {
    "rules": ("conformance", "--rules"),
    "dump": ("repro", "--bytes"),
    "describe": ("layouts", "--shape"),
    "schema": ("explain", "--schema"),
    "sabotage": ("inject",),
}
# Read by code, set by other code: no user sets them.
INTERNAL = {
    "KVCTS_ENGINE_PACKAGE",  # of a worker: which package its plug-in is from
    "KVCTS_CONNECTOR_FOLDER",  # of a host: where the class under test lies
    "KVCTS_ADDRESS",  # of a worker on one of two hosts: its own, and its peer's
    "KVCTS_PEER_ADDRESS",
    "KVCTS_ENTRY_PYTHON",  # by the Python package's command
    "KVCTS_FRONT_OF",
    "KVCTS_LIFELINE",
    "KVCTS_WORKER",
    "KVCTS_PAIR_PROGRAM",  # by a test: what runs a pair of hosts
    "KVCTS_HOSTILE_LOAD",
    "KVCTS_FAKE_DEVICES",
    "KVCTS_FAKE_CAPABILITY",
    "KVCTS_MUTANT",
    "KVCTS_MUTANT_NOTES",
}


def titles() -> list[list[str]]:
    """Every verb and mode of `kvcts help`."""
    found = re.findall(r"^  ([a-z]+(?: --[a-z]+)?) {2,}[A-Z]", expect(0, "help"), re.M)
    return [title.split() for title in found if title not in ("version",)]


def every_verb_is_explained() -> int:
    all_titles = titles()
    assert len(all_titles) > 20, f"expected all verbs, found {all_titles}"
    for title in all_titles:
        text = expect(0, *title, "--help")
        usage = re.search(r"^Usage: kvcts (.*)$", text, re.M)
        example = re.search(r"^Example: kvcts (.*)$", text, re.M)
        statuses = re.search(r"^Exit status: 0 .*2 wrong input.*\.$", text, re.M)
        assert usage and usage[1].startswith(" ".join(title)), f"{title}: no usage in\n{text}"
        assert example and example[1].startswith(title[0]), f"{title}: no example in\n{text}"
        assert statuses or title == ["check"], f"{title}: no exit statuses in\n{text}"
        for option in re.findall(r"(--[a-z-]+)", example[1]):
            assert option in text or option in title, f"{title}: its example has {option}, which it does not have"
        assert expect(0, "help", *title) == text, f"help {title} is not {title} --help"
    return len(all_titles)


def former_names_work() -> None:
    listed = expect(0, "help")
    for former, now in FORMER.items():
        assert not re.search(rf"^  {former}\b", listed, re.M), f"{former} is a former name and is listed"
        assert expect(0, former, "--help") == expect(0, *now, "--help"), f"{former} is not {' '.join(now)}"
    assert expect(0, "schema", "waiver") == expect(0, "explain", "--schema", "waiver")
    assert expect(0, "explain", "--schema=waiver") == expect(0, "explain", "--schema", "waiver")
    assert expect(0, "schema", "--reference") == expect(0, "explain", "--schema", "case", "--reference")
    assert expect(0, "schema", "--json") == expect(0, "--json", "explain", "--schema")


def mistakes_name_their_neighbour() -> None:
    expect(2, "rnu", err="unknown verb 'rnu'; did you mean 'run'?")
    expect(2, "run", "--siute", "smoke", err="unknown option '--siute'; did you mean '--suite'?")
    expect(2, "repro", "--bytes", "x", "--regoin", "y", err="did you mean '--region'?")
    expect(2, "list", "extra", err="unexpected argument 'extra'")
    by_link = "use `kvcts run --suite museum --out DIR`, then `kvcts report DIR --by link`"
    for gone, use in (("triage", "groups failures by cause"), ("museum", by_link), ("report --museum", by_link)):
        expect(2, *gone.split(), err=f"`kvcts {gone}` is gone: ")
        expect(2, "help", *gone.split(), err=use)
    expect(2, "help", "completion", "tcsh", err="expected a shell: bash, zsh, fish; found 'tcsh'")
    for nothing in ("--json", "-x"):
        expect(2, "help", nothing, err=f"expected a verb, found '{nothing}'")
        expect(2, nothing, err=f"expected a verb, found '{nothing}'")
    alone = kvcts()
    assert (alone.status, alone.err) == (2, "kvcts: expected a verb, found none\n"), alone
    assert alone.out == expect(0, "help") == expect(0, "--help")
    assert expect(0, "version") == expect(0, "--version")


def completed(*words: str) -> set[str]:
    script = BUILD / "share" / "bash-completion" / "completions" / "kvcts"
    typed = " ".join(f"'{word}'" for word in words)
    done = subprocess.run(
        ["bash", "-c", f"source '{script}'; COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _kvcts; "
         'printf "%s\\n" "${COMPREPLY[@]}"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


def completions_complete() -> None:
    assert completed("kvcts", "re") == {"report", "repro"}, completed("kvcts", "re")
    assert completed("kvcts", "run", "--su") == {"--suite"}
    assert completed("kvcts", "repro", "--by") == {"--bytes"}
    assert completed("kvcts", "golden", "ver") == {"verify"}
    assert completed("kvcts", "help", "env") == {"environment"}
    for shell in ("zsh", "fish"):
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", "/dev/stdin"], input=expect(0, "help", "completion", shell), text=True)
            assert done.returncode == 0, f"{shell} cannot read its completion"


def the_man_page_formats() -> None:
    page = (BUILD / "share" / "man" / "man1" / "kvcts.1").read_text()
    assert page == expect(0, "help", "man")
    for title in titles():
        assert f".SS kvcts {' '.join(title)}".replace("-", "\\-") in page, f"the man page has no {title}"
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-z"], input=page, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr


def environment_variables_are_listed() -> int:
    listed = set(re.findall(r"^([A-Z_<>]+)$", expect(0, "help", "environment"), re.M))
    read: set[str] = set()
    for file in (ROOT / "harness").rglob("*"):
        if file.suffix in (".cpp", ".hpp", ".c", ".py", ".sh") and "test" not in file.name and "lab" not in file.parts:
            text = file.read_text(encoding="utf-8")
            read |= set(re.findall(r"(?:getenv\(|environ\.get\(|environ\[)\"(KVCTS_[A-Z_]+)\"", text))
            read |= set(re.findall(r"_variable\w* = \"(KVCTS_[A-Z_]+)\"", text))
    read -= INTERNAL | {"KVCTS_SOURCE_DIR", "KVCTS_BINARY_DIR"}
    assert len(read) > 7 and read <= listed, f"read by code and not in the table: {sorted(read - listed)}"
    return len(listed)


def a_search_can_be_watched() -> None:
    for id_, fits in (
        ("seeds/xformers-t4#wrong-inner-order", "fits at 1.05, axis-permuted: "),
        ("field/wrong-block-zeroed", "fits at 1.60, wrong-block-id: blocks [3] instead of [5] in 'fill2'"),
    ):
        shown = expect(0, "repro", id_, "--trace-diagnosis", says=fits)
        assert "  | 1.00 nothing happened: " in shown, shown
        assert "hypotheses" not in expect(0, "repro", id_), id_


def every_word_is_explained() -> int:
    """Labels and controlled words of outputs, terms of the field, kinds and axes of the catalogue."""
    words = {"block table", "prefill", "decode", "memory region", "scripted case", "published bugs", "injected faults"}
    words |= {"engine edge behaviour", "slot", "KV head", "waiver", "not isolated", "look at", "unique executions"}
    shown = expect(0, "repro", "seeds/xformers-t4#wrong-inner-order")
    words |= set(re.findall(r"^([a-z]+(?: at)?) {2,}", shown, re.M))
    words |= set(re.findall(r"(?:^|, )(arch|dtype|connector|engine|op|seed) ", shown, re.M))
    words |= set(re.findall(r"\d (layers|blocks|heads|copies|tokens|deciding passes|rank)\b", shown))
    words |= set(re.findall(r"(checked|planned|moved|expected|wrong)\b", shown))
    schema = json.loads((ROOT / "reports" / "schema" / "results.schema.json").read_text())["$defs"]
    for name in ("outcome", "verdict", "evidence", "phase"):
        words |= {name, *schema[name]["enum"]}
    words |= set(re.findall(r"^\| `(\w+)` \|", expect(0, "explain", "--schema", "axes"), re.M))
    words |= {word.split()[0] for word in expect(0, "explain", "--schema").splitlines()}
    unknown = [word for word in sorted(words) if kvcts("explain", word).status != 0]
    assert not unknown, f"kvcts explain does not know {unknown}"
    return len(words)


def main() -> None:
    need_program()
    verbs = every_verb_is_explained()
    former_names_work()
    mistakes_name_their_neighbour()
    completions_complete()
    the_man_page_formats()
    variables = environment_variables_are_listed()
    a_search_can_be_watched()
    explained = every_word_is_explained()
    print(
        f"{explained} words explained, {verbs} verbs and modes, {len(FORMER)} former names, {variables} environment "
        f"variables, {KVCTS.name}"
    )


if __name__ == "__main__":
    finish(main)
