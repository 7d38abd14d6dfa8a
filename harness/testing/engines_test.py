"""A sample of the suite engines: every case as expected, each by the path that its engine is named after; without the packages: SKIPPED."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

from kvtest import finish, kvcts, need_program, results

# What the engine's own facts must say, where its name promises a path.
PATHS = {"nixl-tcp": "tcp/lo", "nixl-tcp-thread": "tcp/lo", "nixl-cma": "cma/memory", "nixl-1.2-tcp": "tcp/lo", "nixl-1.2-cma": "cma/memory",
         "ucx-1.22-tcp": "tcp/lo", "ucx-1.22-cma": "cma/memory", "nixl-posix": "file/default",
         "nixl-posix-aio": "file/aio", "nixl-posix-paio": "file/posix_aio", "nixl-posix-uring": "file/uring", "nixl-1.2-posix": "file/posix_aio",
         "mooncake": "tcp", "mooncake-0.3.12": "tcp", "mooncake-mixed": "tcp"}


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory() as place:
        sample = Path(place) / "sample"
        done = kvcts("run", "--suite", "engines", "--shard", "1/6", "--out", str(sample), timeout=600)
        assert done.status == 0, f"the sample ended with {done.status}\n{done.out}\n{done.err}"
        ran: Counter[str] = Counter()
        for case in results(sample):
            engine, path = case["facts"].get("engine", "own"), case["facts"].get("engine_path", {})
            ran[engine + (" SKIPPED" if case["outcome"] == "SKIPPED" else "")] += 1
            if case["outcome"] == "PASS" and engine in PATHS:
                assert path.get("transport") == PATHS[engine], f"{case['id']} took {path.get('transport')}, its engine is {engine}"
                assert int(path.get("engine_bytes", 1)) > 0, f"{case['id']}: the engine counted nothing"

        bare = Path(place) / "bare"
        without = kvcts("run", "--id", "kv/producer=vllm-fa-nhd/engine=nixl-tcp", "--out", str(bare), env={**os.environ, "KVCTS_ENGINE_PACKAGES": place})
        assert without.status == 0, without.err
        (case,) = results(bare)
        assert case["outcome"] == "SKIPPED" and "./run_suite.sh install" in case["message"], case
        required = kvcts("run", "--id", "kv/producer=vllm-fa-nhd/engine=nixl-tcp", "--require", "nixl-1.5.1", "--out", str(Path(place) / "required"),
                         env={**os.environ, "KVCTS_ENGINE_PACKAGES": place})
        assert required.status == 1, "what is required and missing is a failure"
    print(", ".join(f"{count} {engine}" for engine, count in sorted(ran.items())))
    return 0


if __name__ == "__main__":
    finish(main)
