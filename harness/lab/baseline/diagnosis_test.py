"""The baseline tells a class that changed from words that did, and is twice the same (here of one suite)."""

from __future__ import annotations

import diagnosis


def one(words: str, kind: str = "stale-block") -> dict:
    return {"outcome": "FAIL", "class": kind, "sure": True, "causes": [kind], "words": words}


def main() -> None:
    before = {"a": one("x"), "b": one("y"), "c": one("z")}
    assert diagnosis.differences(before, dict(before)) == ([], False)
    lines, judged = diagnosis.differences(before, before | {"a": one("other")})
    assert lines == ["a: words 'x' -> 'other'"] and not judged
    lines, judged = diagnosis.differences(before, before | {"b": one("y", "wrong-block-id")})
    assert judged and lines == ["b: class 'stale-block' -> 'wrong-block-id'; causes ['stale-block'] -> ['wrong-block-id']"]
    assert diagnosis.differences(before, {"a": before["a"], "b": before["b"]}) == (["c: gone"], True)
    seeds = diagnosis.run(["--suite", "seeds"])
    assert seeds == diagnosis.run(["--suite", "seeds"])
    assert seeds["seeds/xformers-t4#wrong-inner-order"]["class"] == "axis-permuted"
    print(f"OK: {len(seeds)} seeds twice the same")


if __name__ == "__main__":
    main()
