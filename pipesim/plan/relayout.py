"""Other layouts for a job whose number of processes has changed, by their simulated step time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.layouts.layout import BadLayout, Layout, SplitRule
from pipesim.costs.models.model import Model
from pipesim.plan.planner import search
from pipesim.plan.request import ImpossibleRequest, Request

_ALL = 1 << 30


@dataclass(frozen=True)
class Timed:
    """A layout and its simulated step time."""

    layout: Layout
    step_time_s: float


def layouts_by_time(
    layout: Layout, model: Model, cluster: Cluster, *, schedule: str, virtual: int | None = None
) -> list[Timed]:
    """Layouts of pp, tp and dp on all of the cluster's GPUs that fit in their memory, the fastest first.

    Model, batch, precision, ZeRO stage, recomputation and the family of the schedule stay those of `layout`.
    Empty where nothing fits, or the planner cannot simulate such a schedule.
    """
    try:
        request = Request(
            model=model, cluster=cluster, global_batch=layout.global_batch, seq=layout.seq,
            precision=layout.precision, framework=layout.framework, schedules=(schedule,),
            micro_batch=(layout.micro_batch,), virtual=None if virtual is None else (virtual,), cp=(1,), ep=(1,),
            zero=(layout.zero_stage,), recompute=(layout.recompute,), splits=(_split(layout),),
            sequence_parallel=(layout.sequence_parallel,), tp_across_nodes=True,
        )  # fmt: skip
        best = search(request, top=_ALL).best
    except ImpossibleRequest:
        return []
    found: dict[tuple[int, int, int], Timed] = {}
    for outcome in best:
        pp, tp, dp = outcome.choice.pp, outcome.choice.core.tp, outcome.choice.dp
        try:
            other = replace(layout, pp=pp, tp=tp, dp=dp, virtual=1, split=_split(layout),
                            sequence_parallel=layout.sequence_parallel and tp > 1)  # fmt: skip
        except BadLayout:
            continue
        found.setdefault((pp, tp, dp), Timed(other, outcome.step_time_s))
    return list(found.values())


def _split(layout: Layout) -> SplitRule:
    """Layers counted out for one number of stages are none for another."""
    return layout.split if isinstance(layout.split, str) else "balanced"
