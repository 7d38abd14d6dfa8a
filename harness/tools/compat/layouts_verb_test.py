"""kvcts layouts SYSTEM-VERSION lists what the backends of that version hand out, and nothing of another one;
SYSTEM-VERSION:BACKEND:SETTING is one."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import finish, kvcts, kvcts_json, need_program  # noqa: E402


def of(version: str) -> set[tuple[str, str]]:
    return {(each["backend"], each["layout"]) for each in kvcts_json("layouts", f"vllm-{version}")}


def main() -> int:
    need_program()
    old, new = of("0.8.5"), of("0.33.0")
    gone = ("BLOCK_SPARSE_FLASH_ATTN", "vllm-xformers")  # 0.8.5 to 0.9.2
    assert gone in old and gone not in new, (old, new)
    assert new - old and old - new, "two versions hand out the same"
    for name in ("FLASH_ATTN", "FlashAttention", "FlashAttentionBackend"):
        ended = kvcts("layouts", f"vllm-0.25.1:{name}:HND")
        assert ended.status == 0 and ended.out.startswith("vllm-blocks-first-hnd: "), ended
    ended = kvcts("layouts", "vllm-0.25.1:NoSuchBackend")
    assert ended.status == 2 and "NoSuchBackend" in ended.err, ended
    ended = kvcts("layouts", "vllm-0.0.1")
    assert ended.status == 2 and "no layout is known to be used by vllm-0.0.1" in ended.err, ended
    return 0


if __name__ == "__main__":
    finish(main)
