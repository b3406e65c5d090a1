"""What a layout takes at least, in time and in memory, without building its schedule.

A rank cannot start before a microbatch has come through the stages before its first one, must do all its work,
and, where the backward is not split, must leave time for its last gradient to go back through those stages
(with equal stages this is 1F1B's own makespan, and interleaved 1F1B's). Time that a stage takes beside its
layers, embedding and head (the host, gathered weights), messages, reduction and optimizer are left out: all of
them only add. So what the bound excludes no simulation would have brought back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesim.costs.costs import Floats
from pipesim.costs.layouts.frameworks import closest_framework
from pipesim.costs.layouts.groups import expert_groups, rank_groups
from pipesim.costs.layouts.split import StageLayers
from pipesim.costs.memory import stage_memory
from pipesim.costs.times.habits import habits_of
from pipesim.costs.times.layer_times import stage_parts
from pipesim.costs.times.site import Groups, Site
from pipesim.plan.request import Request
from pipesim.plan.space import Choice, Core, Shape, core_layout, layers_of, layout_of, shape_of, stages_of
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.family import Setting

_LEFT_OUT = ("host", "data")


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of forward, input gradient and weight gradient: (layers, 3), and (3,) of embedding and head."""

    layers: Floats
    embedding: Floats
    head: Floats

    @cached_property
    def whole_s(self) -> float:
        """All work of one microbatch."""
        return float(self.layers.sum() + self.embedding.sum() + self.head.sum())

    def of_stages(self, layers: tuple[int, ...]) -> Floats:
        """(stages, 3), as the estimate gives them: the first stage has no input gradient to give."""
        found = _added(self.layers, layers)
        found[0] += self.embedding
        found[-1] += self.head
        found[0] = [found[0, 0], 0.0, found[0, 1] + found[0, 2]]
        return found


def _added(values: Floats, layers: tuple[int, ...]) -> Floats:
    """Sums of rows over the layers of each stage."""
    ends = np.concatenate([[0], np.cumsum(layers)])
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    found: Floats = sums[ends[1:]] - sums[ends[:-1]]
    return found


def times(request: Request, core: Core) -> Times:
    """What the parts of a model take at least under a core, whatever arranges them: each on the best devices."""
    cluster = request.cluster
    first = {node.name: start for node, start in zip(cluster.nodes[::-1], cluster.starts[-2::-1], strict=True)}
    found = [times_on(request, core, device, _LEFT_OUT) for device in first.values()]
    return Times(
        np.min([one.layers for one in found], axis=0),
        np.min([one.embedding for one in found], axis=0),
        np.min([one.head for one in found], axis=0),
    )


def times_on(request: Request, core: Core, device: int, without: Sequence[str] = ()) -> Times:
    """What the parts of a model take on one device, each by itself, without some groups of work."""
    kinds, site = request.model.kinds(), _site(request, core, device)

    def of(stage: StageLayers) -> Floats:
        parts = [part for part in stage_parts(site, stage) if part.group not in without]
        rows = [(part.forward_s, part.input_s, part.weight_s) for part in parts]
        found: Floats = np.array(rows).reshape(-1, 3).sum(axis=0)
        return found

    of_kind = {kind: of(StageLayers(kinds.index(kind), 1)) for kind in set(kinds)}
    ends = of(StageLayers(0, 0, embedding=1.0)), of(StageLayers(0, 0, head=1.0))
    return Times(np.array([of_kind[kind] for kind in kinds]), *ends)


def _site(request: Request, core: Core, device: int) -> Site:
    """A device with its groups, as they are in any layout: neighbours. Those of data and pipeline parallelism do
    not matter here."""
    layout, cluster = core_layout(request, core), request.cluster
    expert = expert_groups(layout, "ep")[0] if core.ep > 1 else np.zeros(1, np.int64)
    found = [rank_groups(layout, "tp")[0], rank_groups(layout, "cp")[0], expert]
    base = min(device, cluster.devices - 1 - max(int(members.max()) for members in found))
    tensor, context, experts = (tuple((base + members).tolist()) for members in found)
    groups = Groups(tensor, context, experts, (device,), (device,))
    return Site(request.model, layout, cluster, habits_of(request.framework), cluster.gpu_of(device), groups)


def core_bound_s(request: Request, core: Core, least: Times) -> float:
    """No arrangement of the layers is faster: on average over the ranks of a pipeline, each does its share of the
    work of its microbatches."""
    ranks = request.cluster.devices / (core.tp * core.cp)
    return request.global_batch / core.micro_batch * least.whole_s / ranks


def choice_bound_s(request: Request, choice: Choice, least: Times) -> float:
    """The step time of a choice is no less."""
    shape = shape_of(choice.schedule, choice.pp, choice.virtual)
    whole = core_bound_s(request, choice.core, least)
    layers = layers_of(request, stages_of(choice), choice.split)
    if shape is None or shape.placement.chains > 1 or layers is None:
        return whole
    microbatches = request.global_batch // (choice.dp * choice.core.micro_batch)
    return max(whole, _rank_bound(least.of_stages(layers), shape, microbatches))


def _rank_bound(stages: Floats, shape: Shape, microbatches: int) -> float:
    rank = np.asarray(shape.placement.ranks_of_stages)
    work = microbatches * np.bincount(rank, weights=stages.sum(axis=1))
    head = np.cumsum(stages[:, 0]) - stages[:, 0]
    back = stages[:, 1] + stages[:, 2]
    tail = np.zeros(len(stages)) if shape.splits_backward else np.cumsum(back) - back
    earliest, shortest = np.full(len(work), np.inf), np.full(len(work), np.inf)
    np.minimum.at(earliest, rank, head)
    np.minimum.at(shortest, rank, tail)
    return float((earliest + work + shortest).max())


@dataclass(frozen=True, eq=False)
class Bytes:
    """State bytes and stored bytes of a microbatch: (layers, 2); (2,) of embedding, head, and both in one stage."""

    layers: Floats
    embedding: Floats
    head: Floats
    both: Floats
    working: float
    """The most that any part holds on top while it runs."""

    def of_stages(self, layers: tuple[int, ...]) -> Floats:
        """(stages, 2)."""
        found = _added(self.layers, layers)
        if len(layers) == 1:
            return found + self.both
        found[0] += self.embedding
        found[-1] += self.head
        return found


def held(request: Request, choice: Choice) -> Bytes:
    """What the parts of a model hold under a core, a ZeRO stage and its number of replicas. Raises BadLayout."""
    layout, model = layout_of(request, choice), request.model
    kinds = model.kinds()

    def of(stage: StageLayers) -> Floats:
        memory = stage_memory(model, layout, stage)
        return np.array([memory.states.total, memory.activations.stored, memory.activations.working])

    of_kind = {kind: of(StageLayers(kinds.index(kind), 1)) for kind in set(kinds)}
    ends = [of(StageLayers(0, 0, *shares)) for shares in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))]
    working = max(float(one[2]) for one in (*of_kind.values(), *ends))
    embedding, head, both = (end[:2] for end in ends)
    return Bytes(np.array([of_kind[kind][:2] for kind in kinds]), embedding, head, both, working)


def choice_memory_bytes(request: Request, choice: Choice, least: Bytes) -> float:
    """The fullest rank of a choice holds no less: its states, and activations of as many microbatches as the
    family's closed form says, were all of them of its emptiest stage."""
    shape = shape_of(choice.schedule, choice.pp, choice.virtual)
    layers = layers_of(request, stages_of(choice), choice.split)
    framework = closest_framework(request.framework)
    if shape is None or layers is None:
        return 0.0
    placement = shape.placement
    stages = np.tile(least.of_stages(layers), (placement.chains, 1))
    rank = np.asarray(placement.ranks_of_stages)
    smallest = np.full(placement.ranks, np.inf)
    np.minimum.at(smallest, rank, stages[:, 1])
    microbatches = request.global_batch // (choice.dp * choice.core.micro_batch)
    share = placement.length / placement.ranks
    in_flight = np.array([max(1.0, _in_flight(choice, microbatches, one) * share) for one in range(placement.ranks)])
    by_rank = np.bincount(rank, weights=stages[:, 0]) + smallest * in_flight
    return float(by_rank.max()) * (1 + framework.fragments) + framework.overhead_bytes


def _in_flight(choice: Choice, microbatches: int, rank: int) -> float:
    """Microbatches that a rank holds at its peak by the family's closed form, less what that may be off by."""
    family = FAMILIES[choice.schedule]
    setting = Setting(p=choice.pp, m=microbatches, v=choice.virtual or 1, n=choice.pp)
    if family.peak is None or not family.peak_holds(setting):
        return 0.0
    return family.peak(setting, rank)
