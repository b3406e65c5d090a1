"""From a row of a table of runs to what a step of it takes: time, throughput, memory, bubble, communication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipesim.costs.clusters.gpu import Gpu
from pipesim.costs.clusters.row_cluster import cluster_of_row
from pipesim.costs.estimate import Estimate, estimate
from pipesim.costs.layouts.flops import model_flops
from pipesim.costs.layouts.frameworks import GIB, closest_framework
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.row_layout import layout_of_row
from pipesim.costs.models.model import Model
from pipesim.ir.action import Kind
from pipesim.plan.row_schedule import RowSchedule, schedule_of_row
from pipesim.plan.timing import Timed, timed

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Prediction:
    """What `docs/rows.md` describes, field by field.

    memory_gb: GiB, the most of any rank, counted as the framework reports it. mfu: of the 16-bit peak.
    exposed_comm_s: how much sooner the step would end if no communication took time, mean over ranks.
    assumed: what the row did not say, as "name=value".
    """

    step_time_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    memory_gb: float
    bubble_fraction: float
    exposed_comm_s: float
    assumed: tuple[str, ...]


def predict_row(row: Row) -> Prediction:
    """Predict one row. Raises PipesimError where it lacks something, or its numbers do not fit together."""
    read = layout_of_row(row)
    cluster, unsaid = cluster_of_row(row)
    layout, model = _with_units(read.layout, row, cluster.gpu_of(0)), Model.from_fields(row)
    layout.check_gpus(cluster.devices)  # before a schedule of a billion ranks is built
    plan = schedule_of_row(row, layout)
    made = estimate(model, cluster, layout, plan.placement, contention=False)
    run = timed(plan, made.costs, reduce=layout.dp * layout.cp > 1)
    costs = made.costs
    later = plan.more_in_flight * float((costs.of_kind(Kind.F) + costs.of_kind(Kind.B)).max())
    step = run.step_s + later
    tokens = layout.tokens_per_step / step
    flops = model_flops(model, tokens=tokens, seq=layout.seq)
    return Prediction(
        step_time_s=step,
        tokens_per_s_per_gpu=tokens / layout.gpus,
        mfu=flops / layout.gpus / _sixteen_bit_peak(cluster.gpu_of(0)),
        memory_gb=_memory(made, plan, run, layout) / GIB,
        bubble_fraction=1 - float(run.busy_s.mean()) / (run.makespan_s + later),
        exposed_comm_s=_exposed(made, plan, run, layout),
        assumed=tuple(f"{name}={value}" for name, value in {**read.assumed, **unsaid}.items()),
    )


def _with_units(layout: Layout, row: Row, gpu: Gpu) -> Layout:
    """The layout in fp16 where the row does not name bf16 ("mixed") and the GPU is older than that."""
    named = "bf16" in str(row.get("precision") or "").lower() and "fp16" not in str(row["precision"]).lower()
    if named or "bf16" not in layout.precision or "bf16" in gpu.peaks:
        return layout
    return replace(layout, precision=layout.precision.replace("bf16", "fp16"))


def _sixteen_bit_peak(gpu: Gpu) -> float:
    return gpu.peak("bf16" if "bf16" in gpu.peaks else "fp16")


def _memory(made: Estimate, plan: RowSchedule, run: Timed, layout: Layout) -> float:
    """Bytes of the fullest rank, with the microbatches that a spread vocabulary keeps in flight besides."""
    held, framework = made.costs.held, closest_framework(layout.framework)
    assert held is not None
    own = np.bincount(plan.placement.ranks_of_stages, weights=held.activation, minlength=plan.placement.ranks)
    more = plan.more_in_flight + plan.longer_in_flight * np.arange(plan.placement.ranks, 0, -1)
    peak = float((run.peak_bytes + own * np.minimum(more, layout.microbatches)).max())
    if framework.reports == "device":
        return peak
    return (peak - framework.overhead_bytes) / (1 + framework.fragments)


def _exposed(made: Estimate, plan: RowSchedule, run: Timed, layout: Layout) -> float:
    """Inside stages, mean over ranks; messages between them; reduction and gathering after them."""
    inside = sum(float(values.sum()) for kind, values in made.costs.tensor_comm_s.items() if kind in (Kind.F, Kind.B))
    share = inside * layout.microbatches / plan.placement.ranks / plan.placement.chains
    return share + run.messages_s + run.sync_s + float(made.gather_s.max())
