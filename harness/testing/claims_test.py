"""What an engine says about itself is a claim: it is shown as a claim and never becomes evidence."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kvtest import finish, kvcts, need_program, results

CASE = """case: claims/one
arch: sm_90
geometry: {base: small, layers: 1}
producer: {layout: vllm-fa-nhd}
consumer: {layout: vllm-fa-hnd}
engine: fixture
engine_options: {claims: "device_evidence=executed,arch=sm_90,transport=rdma/mlx5_0"}
"""


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory() as place:
        file, out = Path(place) / "claims.yaml", Path(place) / "out"
        file.write_text(CASE)
        done = kvcts("run", "--file", str(file), "--out", str(out))
        assert done.status == 0, done.err
        (case,) = results(out)
        assert case["outcome"] == "PASS" and case["facts"]["engine_claims"]["device_evidence"] == "executed", case
        assert case["evidence"] == "modelled", (
            f"no device of that architecture was seen, and the result is {case['evidence']}"
        )
        assert "executed" not in done.out, done.out
        alone = kvcts("repro", "claims/one", "--file", str(file))
        assert "(modelled)" in alone.out and "executed" not in alone.out, alone.out
    print("an engine that claims a device is modelled")
    return 0


if __name__ == "__main__":
    finish(main)
