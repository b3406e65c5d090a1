"""Published choices against the planner's: `python benchmarks/planner/recommended.py`; writes recommended.txt.

For each layout that Narayanan et al. (Megatron-LM, 2021, table 1) and NVIDIA (NeMo and Megatron Bridge performance
summaries) recommend, the planner goes through what their software had at the time: the same parallel dimensions and
schedules, recompute as they did, no ZeRO beyond the distributed optimizer. The published layout is priced by the same
model, so what is compared is the choice, not the prediction's error. Micro-batches that were not published are the
best ones for the published layout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.models.model import Model
from pipesim.plan.detail import detail, difference
from pipesim.plan.planner import search
from pipesim.plan.relief import name_of
from pipesim.plan.request import Request

HERE = Path(__file__).parent
ROWS = HERE.parents[1] / "tests" / "data" / "training.jsonl"
NVIDIA = ("bridge-26.04.01-L207-0", "bridge-25.11-L589-0", "bridge-25.11-L590-0", "nemo-24.07a-1", "nemo-24.07a-2",
          "nemo-24.07a-3", "nemo-24.07a-4", "nemo-24.07a-5", "nemo-24.07a-6")  # fmt: skip
_WITHIN = 1.10


@dataclass(frozen=True, eq=False)
class Case:
    """A published choice: the space it was made from, and the part of it that is the choice."""

    name: str
    everything: Request
    published: Request
    measured_s: float | None


def narayanan() -> Iterator[Case]:
    for row in json.loads((HERE / "narayanan.json").read_text())["rows"]:
        model = Model.from_fields({
            "name": f"GPT {row['params_b']:g}B", "arch": "gpt", "layers": row["layers"], "hidden": row["hidden"],
            "heads": row["heads"], "vocab": 51200, "seq": 2048,
        })  # fmt: skip
        space = Request(
            model=model, cluster=load_cluster(f"dgx-a100:{row['gpus'] // 8}"), global_batch=row["batch"], seq=2048,
            precision="fp16", attention="fused-softmax", schedules=("1f1b", "interleaved"), cp=(1,), zero=(0,),
            recompute=("full",), sequence_parallel=(False,), micro_batch=(1, 2, 4, 8), splits=("even",),
        )  # fmt: skip
        yield Case(f"2104.04473 {row['params_b']:g}B", space, replace(space, tp=(row["tp"],), pp=(row["pp"],)), None)


def nvidia() -> Iterator[Case]:
    rows: dict[str, dict[str, Any]] = {row["id"]: row for row in map(json.loads, ROWS.read_text().splitlines())}
    for name in NVIDIA:
        row = rows[name]
        chunks = row.get("vp") or 1
        space = Request(
            model=Model.from_fields(row), cluster=load_cluster(f"dgx-h100:{max(1, row['num_gpus'] // 8)}"),
            global_batch=row["global_batch"], seq=row["seq"], precision="fp8", framework="megatron-core",
            schedules=("1f1b", "interleaved"), virtual=tuple(range(2, 21)), cp=(1, 2, 4), zero=(0, 1),
            micro_batch=(1, 2, 4, 8), sequence_parallel=(True, False), splits=("even",),
        )  # fmt: skip
        choice = {"tp": (row["tp"],), "pp": (row["pp"],), "cp": (row.get("cp") or 1,), "zero": (1,)}
        schedule = {"virtual": (chunks,), "schedules": ("interleaved",)} if chunks > 1 else {"schedules": ("1f1b",)}
        mine = replace(space, **choice, **schedule, micro_batch=(row["micro_batch"],))
        yield Case(f"{name} {row['model']}", space, mine, row["measured"]["step_time_s"])


def compare(case: Case, pool: ProcessPoolExecutor, workers: int) -> list[str]:
    begun = time.perf_counter()
    best = search(case.everything, top=1, executor=pool, workers=workers)
    published = search(case.published, top=1)
    if not published.best:
        return [case.name, str(case.everything.cluster.devices), "does not fit by our memory model", "", "", "", ""]
    one, other = detail(case.everything, best.best[0]), detail(case.published, published.best[0])
    ratio = other.step_time_s / one.step_time_s
    why = "" if ratio <= _WITHIN else difference(one, other)
    return [
        case.name, str(case.everything.cluster.devices), name_of(other.choice), f"{other.step_time_s:.3f}",
        f"{case.measured_s:.3f}" if case.measured_s else "", name_of(one.choice), f"{one.step_time_s:.3f}",
        f"{ratio:.3f}", f"{best.counts.simulated}/{best.counts.enumerated}", f"{time.perf_counter() - begun:.1f}", why,
    ]  # fmt: skip


HEAD = ["row", "GPUs", "published", "s", "measured s", "ours", "s", "ratio", "simulated", "took s", "why"]


def main() -> None:
    workers = os.cpu_count() or 1
    lines = [HEAD]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for case in (*narayanan(), *nvidia()):
            lines.append(compare(case, pool, workers))
            print(" | ".join(lines[-1]), file=sys.stderr)
    text = "\n".join(" | ".join(line) for line in lines) + "\n"
    print(text)
    (HERE / "recommended.txt").write_text(text)


if __name__ == "__main__":
    main()
