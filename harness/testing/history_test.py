"""kvcts history: runs of one file in which a case broke, became well and broke again; the file is made, added to, asked, and
refused when it is none."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from compare_test import LIES, PLAIN, run
from kvtest import expect, finish, need_program


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts history ") as place:
        folder = Path(place)
        file = str(folder / "nights" / "history.db")
        right = [PLAIN.format("a", "vllm-fa-hnd"), PLAIN.format("b", "vllm-fa-nhd")]
        wrong = [LIES.format("a"), right[1]]
        runs = [run(folder, f"night{n}", *documents) for n, documents in enumerate([right, right, wrong, wrong])]

        expect(2, "history", "show", "--history", file, err="not found; `kvcts history add RUN... --history FILE` makes one")
        expect(0, "history", "add", *runs[:3], "--history", file, says=f"{file}: 3 runs\n")
        said = expect(0, "history", "add", *runs, "--history", file, says=f"{file}: 4 runs\n")
        assert said.count("known already") == 3 and said.count("  added\n") == 1, said

        said = expect(0, "history", "show", "new", "--history", file, says="1 newly failing\n")
        assert "last good " in said and ": FAIL axis-permuted at compare\n" in said and "    ..FF  t/a\n" in said, said
        expect(0, "history", "show", "flaky", "--history", file, says="nothing is flaky\n")
        expect(0, "history", "show", "slow", "--history", file, says="nothing is slow\n")
        said = expect(0, "history", "show", "t/a", "--history", file, says="2 of 4 nights fail (15 to 85 %), 1 flip\n")
        assert "bad since " in said and "2 x FAIL axis-permuted at compare" in said, said
        told = json.loads(expect(0, "history", "show", "--history", file, "--json"))
        assert [one["id"] for one in told["new"]] == ["t/a"] and told["new"][0]["strip"] == "..FF", told
        assert len(json.loads(expect(0, "history", "show", "t/b", "--history", file, "--json"))["points"]) == 4

        expect(2, "history", "show", "t/c", "--history", file, err="expected new, flaky, slow or the id of a case in ")
        expect(2, "history", "show", "new", "--history", file, "--since", "yesterday", err="a date as 2026-11-01, found")
        expect(0, "history", "show", "--history", file, "--since", "2999-01-01", says="\nnothing changed\n")
        expect(2, "history", "show", "--history", file, "--suite", "smoke", err="no run of suite smoke is in ")
        page = folder / "page"
        expect(1, "report", runs[3], "--out", str(page), "--since", runs[1], "--history", file)
        said = (page / "index.html").read_text()
        assert '<h2 id="nights">Nights <span class="count">4</span>' in said and "new since the previous run" in said
        assert 'aria-label="2 of the last 4 nights failed, 0 flaky"' in said and '"strips":{"t/a":"..FF"}' in said
        expect(2, "report", runs[3], "--history", file, err="`kvcts history show` prints")
        expect(2, "history", "add", str(folder / "nowhere"), "--history", file, err="not found")
        expect(2, "history", "show", "--history", runs[0] + "/store.db", err="this is no history")
        expect(0, "history", "show", "--history", file, says="1 newly failing\n")


if __name__ == "__main__":
    finish(main)
