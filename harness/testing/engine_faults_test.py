"""A sample of suite engine-faults, with one case that waits for a hang: every case as expected; without the packages
all are SKIPPED."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

from kvtest import finish, kvcts, need_program, results

SAMPLE = [
    "mooncake-late-write",
    "mooncake-late-write#healthy",
    "mooncake-late-write#read",
    "mooncake-store",
    "mooncake-store#wrong-at-*",
    "mooncake-store-keeps-old-values*",
    "nixl-idle-target",
    "nixl-idle-target#busy",
]


def main() -> int:
    need_program()
    chosen = [word for name in SAMPLE for word in ("--id", f"engine-faults/{name}")]
    with tempfile.TemporaryDirectory() as place:
        outcomes: Counter[str] = Counter()
        for name, environment in (("installed", os.environ), ("bare", {**os.environ, "KVCTS_ENGINE_PACKAGES": place})):
            out = Path(place) / name
            done = kvcts(
                "run", "--suite", "engine-faults", *chosen, "-j", "2", "--out", str(out), env=dict(environment), timeout=300
            )
            cases = results(out)
            wanted = 5 if any(case["outcome"] == "SKIPPED" for case in cases) else 0
            assert done.status == wanted, f"{name}: ended with {done.status}\n{done.out}\n{done.err}"
            assert len(cases) == 13, [case["id"] for case in cases]
            if name == "installed":
                outcomes.update(case["outcome"] for case in cases)
            else:
                assert all(case["outcome"] == "SKIPPED" and "./run_suite.sh install" in case["message"] for case in cases), (
                    cases
                )
        # A package of an unknown version is not called.
        package = Path(place) / "packages" / "mooncake-0.3.13.post1"
        (package / "mooncake").mkdir(parents=True)
        (package / "kvcts-pins").write_text("pinned\n")
        (package / "mooncake" / "engine.so").write_bytes(b"another build")
        out = Path(place) / "unknown"
        done = kvcts(
            "run",
            "--id",
            "kv/producer=vllm-fa-nhd/engine=mooncake",
            "--out",
            str(out),
            env={**os.environ, "KVCTS_ENGINE_PACKAGES": str(package.parent)},
        )
        (case,) = results(out)
        assert (
            done.status == 5
            and case["outcome"] == "SKIPPED"
            and "of a version that this plug-in does not know" in case["message"]
        ), case
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    return 0


if __name__ == "__main__":
    finish(main)
