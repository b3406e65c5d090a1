"""How `trtllm-bench throughput` sets itself up: limits from the dataset's lengths, and how many requests it sends.

The rules are those of TensorRT-LLM's tensorrt_llm/bench/build/tuning.py; numbers of requests are those that its
performance overview (docs/source/performance/perf-overview.md, v1.0) lists for its tables.
"""

from __future__ import annotations

from math import ceil

_REQUESTS = {
    (128, 128): 30000, (128, 2048): 3000, (128, 4096): 1500, (1000, 2000): 1500, (2048, 128): 3000, (2048, 2048): 1500,
    (5000, 500): 1500, (1000, 1000): 3000, (500, 2000): 3000, (20000, 2000): 1000,
}  # fmt: skip
_MOST_TOKENS = 32768
_MOST_BATCH = 4096


def requests_sent(prompt: int, output: int) -> int:
    """Requests of one benchmark; where the lengths are not listed, as many as are for similar ones."""
    total = prompt + output
    return _REQUESTS.get((prompt, output), 30000 if total <= 512 else 3000 if total <= 2560 else 1500)


def tuned_limits(*, fit: float, prompt: int, output: int, stages: int) -> tuple[int, int]:
    """Most requests and most tokens of a step, where `fit` requests fit the cache; per pipeline rank's microbatch."""
    raw = min(fit, _MOST_BATCH) / stages
    if raw < 256:
        batch = max(64, _up(raw, 32))
    else:
        batch = _up(raw, 128 if raw < 1024 else 256)
    wanted = min(raw * (1 + prompt / output), _MOST_TOKENS)
    if wanted < 4096:
        tokens = max(2048, _up(wanted, 256))
    else:
        tokens = _up(wanted, 512 if wanted < 8192 else 1024)
    return batch, max(batch, tokens)


def _up(value: float, unit: int) -> int:
    return unit * ceil(value / unit)
