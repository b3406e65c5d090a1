"""From a row of a table of runs to what a step of it takes: time, throughput, memory, bubble, communication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipesim.costs.estimate import estimate
from pipesim.costs.model import Model
from pipesim.costs.row_cluster import cluster_of_row
from pipesim.costs.row_layout import layout_of_row
from pipesim.engine.durations import durations
from pipesim.engine.fast import holds
from pipesim.engine.held import memory_trace
from pipesim.plan.row_schedule import family_of, sweeper

Row = Mapping[str, object]
GIB = 1 << 30


@dataclass(frozen=True)
class Prediction:
    step_time_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    memory_gb: float
    bubble_fraction: float
    exposed_comm_s: float
    assumed: tuple[str, ...]


def predict_row(row: Row) -> Prediction:
    made = layout_of_row(row)
    layout = made.layout
    model = Model.from_fields(row)
    cluster, assumed = cluster_of_row(row)
    family = family_of(str(row.get("schedule") or ""), layout)
    fast = sweeper(family, layout.pp, layout.microbatches, layout.virtual, "edge", layout.dp * layout.cp > 1)
    program = fast.program
    est = estimate(model, cluster, layout, program.schedule.placement, contention=False)
    costs = est.costs
    timing = durations(program, costs)
    start, end = fast.run(*holds(program, timing, costs))
    step = float(end.max())
    memory = memory_trace(program, costs, start, end)
    work = costs.work
    rate = work.tokens / step / work.gpus
    return Prediction(
        step,
        rate,
        work.model_flops / step / work.gpus / work.peak_flops,
        float(memory.peak.max()) / GIB,
        0.0,
        0.0,
        tuple({**made.assumed, **assumed}),
    )
