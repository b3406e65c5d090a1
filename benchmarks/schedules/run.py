"""How long generating, checking and lowering take, by size: `python benchmarks/schedules/run.py [--quick]`.

Writes results.txt beside it. Every family with a closed form, on 8 ranks, at 10^3, 10^4 and 10^5 actions; the best
of three in CPU time. Beside ours the time of torch's own generation and lowering, of the families it has,
in the same run: its schedule classes do both when they are made. (At 10^5 that takes most of a minute: one family.)
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

from pipesim.ir.check import check
from pipesim.ir.lower import lower
from pipesim.schedules.catalogue import FAMILIES

RESULTS = Path(__file__).with_name("results.txt")
RANKS = 8
SIZES = (1_000, 10_000, 100_000)
NAMES = [
    name for name, family in FAMILIES.items() if family.trains and "memory_limit" not in family.options
]  # the others search: see benchmarks/heuristics
TORCH = {
    "interleaved": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "interleaved-zb": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}


def best(work: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """CPU seconds of the fastest of some tries, and what the last one gave."""
    spent = []
    for _ in range(times):
        begun = time.process_time()
        made = work()
        spent.append(time.process_time() - begun)
    return min(spent), made


def microbatches_for(name: str, actions: int) -> int:
    """As many as give about that many actions, and suit every family."""
    options = FAMILIES[name].options
    few = FAMILIES[name].build(ranks=RANKS, microbatches=4 * RANKS, **_required(options))
    return max(2 * RANKS, actions * 4 * RANKS // len(few) // RANKS * RANKS)


def _required(options: dict[str, Any]) -> dict[str, Any]:
    return {"update_every": RANKS} if "update_every" in options else {}


def row(name: str, actions: int) -> str:
    microbatches, more = microbatches_for(name, actions), _required(FAMILIES[name].options)
    generate, schedule = best(lambda: FAMILIES[name].build(ranks=RANKS, microbatches=microbatches, **more))
    checking, _ = best(lambda: check(FAMILIES[name].build(ranks=RANKS, microbatches=microbatches, **more)))
    lowering, _ = best(lambda: lower(FAMILIES[name].build(ranks=RANKS, microbatches=microbatches, **more)))
    all_three, _ = best(lambda: _all_three(name, microbatches, more))
    cells = [f"{generate:.4f}", f"{checking - generate:.4f}", f"{lowering - generate:.4f}", f"{all_three:.4f}"]
    cells.append(f"{1e6 * all_three / len(schedule):.2f}")
    if name in TORCH and (actions < SIZES[-1] or name == "interleaved"):
        theirs, _ = best(lambda: get_schedule_ops(TORCH[name], RANKS, microbatches, 2), 1)
        cells += [f"{theirs:.3f}", f"{theirs / lowering:.0f}"]
    return "  ".join([name.ljust(15), f"{len(schedule):>8,}", *(cell.rjust(10) for cell in cells)])


def _all_three(name: str, microbatches: int, more: dict[str, Any]) -> None:
    schedule = FAMILIES[name].build(ranks=RANKS, microbatches=microbatches, **more)
    check(schedule)
    lower(schedule)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true", help="only up to 10^4 actions, and write nothing")
    quick = options.parse_args().quick
    heads = ("generate", "check", "lower", "all s", "µs/action", "torch s", "torch/ours")
    lines = [
        f"numpy {numpy.__version__}, torch {torch.__version__}; load {os.getloadavg()[0]:.1f} when measured",
        "CPU seconds; torch/ours compares generating and lowering",
        "  ".join(["family".ljust(15), " actions", *(head.rjust(10) for head in heads)]),
    ]
    for name in NAMES:
        for actions in SIZES[: 2 if quick else 3]:
            lines.append(row(name, actions))
            print(lines[-1], flush=True)
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
