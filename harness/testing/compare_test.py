"""kvcts compare: two runs of one file in which one case broke, one went and one came; exit statuses by policy; runs
that cannot be compared."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from kvtest import expect, finish, need_program

PLAIN = "case: t/{0}\nproducer: {{layout: vllm-fa-nhd}}\nconsumer: {{layout: {1}}}\n"
# What is said of the consumer is not what it is: the right plan for another layout.
LIES = (
    "case: t/{0}\nproducer: {{layout: vllm-fa-nhd}}\nconsumer: {{layout: vllm-fa-hnd, claim: {{layout: "
    "vllm-fa-nhd}}}}\nexpected: PASS\n"
)


def run(folder: Path, name: str, *documents: str) -> str:
    """All runs are of a file of one name, as two nights are."""
    file = folder / name / "pairs.yaml"
    file.parent.mkdir()
    file.write_text("---\n".join(documents))
    out = str(folder / name / "run")
    expect(1 if any("claim" in d for d in documents) else 0, "run", "--file", str(file), "--out", out)
    return out


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts compare ") as place:
        folder = Path(place)
        right = run(folder, "right", PLAIN.format("a", "vllm-fa-hnd"), PLAIN.format("b", "vllm-fa-nhd"))
        expect(0, "compare", right, right, "--policy", "any-change", says="\nnothing changed; 2 as before\n")

        broken = run(folder, "broken", LIES.format("a"), PLAIN.format("b", "vllm-fa-nhd"))
        told = expect(1, "compare", right, broken, says="1 newly failing; 1 as before\n")
        assert "\nnewly failing (1)\n  PASS -> FAIL axis-permuted" in told and "kvcts repro t/a" in told.replace("'", ""), (
            told
        )
        expect(0, "compare", broken, right, says="1 fixed; 1 as before\n")
        expect(0, "compare", broken, broken, says="nothing changed; 2 as before, 1 of them failing\n")

        other = run(
            folder,
            "other",
            PLAIN.format("b", "vllm-fa-nhd"),
            PLAIN.format("c", "vllm-fa-hnd").replace("vllm-fa-nhd", "flashinfer-nhd"),
        )
        expect(0, "compare", right, other, says="1 vanished, 1 new; 1 as before\n")
        told = json.loads(expect(1, "compare", right, other, "--policy", "any-change", "--json"))
        assert [(c["change"], c["id"]) for c in told["changes"]] == [("vanished", "t/a"), ("new", "t/c")], told["changes"]
        assert told["counts"]["vanished"] == 1 and told["after"]["provenance"]["commit"] and told["alike"] == 1, told

        mine = run(folder, "mine", PLAIN.format("a", "vllm-fa-hnd"), PLAIN.format("mine", "vllm-fa-nhd"))
        expect(0, "compare", right, mine, says="\n1 renamed; 1 as before\n")
        expect(0, "run", "--suite", "seeds", "--out", str(folder / "seeds"))
        expect(2, "compare", right, str(folder / "seeds"), err="cases in common, found none in 'pairs.yaml' and 'seeds'")
        expect(0, "run", "--id", "kv/producer=vllm-fa-nhd", "--out", str(folder / "memcpy"))
        expect(0, "run", "--id", "kv/producer=vllm-fa-nhd/engine=shm", "--out", str(folder / "shm"))
        expect(0, "compare", str(folder / "memcpy"), str(folder / "shm"), says="mapped  engine memcpy -> shm: 1 case; ")
        told = expect(
            0, "compare", str(folder / "memcpy"), str(folder / "shm"), "--map", "engine=memcpy:shm", says="1 as before\n"
        )
        assert "mapped  engine memcpy -> shm: 1 case\n" in told, told
        expect(2, "compare", right, mine, "--map", "engin=memcpy:shm", err="found 'engin'; did you mean 'engine'?")
        expect(2, "compare", right, mine, "--map", "engine=shm", err="expected AXIS=BEFORE:AFTER, found 'engine=shm'")
        expect(2, "compare", right, str(folder / "nowhere"), err="nowhere")
        expect(2, "compare", right, err="AFTER")
        expect(2, "compare", right, broken, "--policy", "never", err="never")


if __name__ == "__main__":
    finish(main)
