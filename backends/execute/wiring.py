"""Process groups of a job, made in one order by all ranks, and who shares which weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from pipesim.backends.execute.plan import Plan
from pipesim.backends.execute.transport import Channel
from pipesim.backends.execute.update import Sharing
from pipesim.ir.placement import Placement

Tie = tuple[tuple[int, str], ...]  # (stage of the model, name of its parameter), all one weight


def channel_groups(
    plan: Plan, device: torch.device, pipelines: Sequence[Sequence[int]] = ()
) -> dict[Channel, dist.ProcessGroup]:
    """What each channel runs on: with NCCL a communicator of its own, or one a pair; gloo needs none.

    pipelines: the global ranks of each, where several run the same program side by side.

    Communicators are connected here, in the same order on all ranks: connecting them when first used would
    wait for whoever is busy elsewhere.
    """
    if dist.get_backend() != "nccl":
        return {}
    found: dict[Channel, dist.ProcessGroup] = {}
    for pipeline in pipelines or [range(plan.program.ranks)]:
        groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for source, target, flow in plan.channels:
            ends = (min(source, target), max(source, target))
            name = (source, target, flow) if plan.program.comm == "edge" else ends
            if name not in groups:
                members = [pipeline[end] for end in ends]
                groups[name] = dist.new_group(members)
                if dist.get_rank() in members:
                    dist.all_reduce(torch.zeros(1, device=device), group=groups[name])
            if dist.get_rank() in pipeline:
                found[source, target, flow] = groups[name]
    return found


@dataclass(frozen=True)
class Shared:
    """The weights that a rank's stages have in common with others."""

    replicas: Mapping[int, Sharing]
    ties: Sequence[Sharing]


def find_ties(modules: Sequence[nn.Module]) -> tuple[Tie, ...]:
    """Parameters that are one object in several stages of a model that is here as a whole."""
    places: dict[int, list[tuple[int, str]]] = {}
    for stage, module in enumerate(modules):
        for name, weight in module.named_parameters():
            places.setdefault(id(weight), []).append((stage, name))
    return tuple(tuple(found) for found in places.values() if len(found) > 1)


def share(placement: Placement, rank: int, modules: Mapping[int, nn.Module], ties: Sequence[Tie]) -> Shared:
    """Groups for replicas and ties, and the weights made equal to those of the lowest rank that has them."""
    tied = {place for tie in ties for place in tie}
    replicas: dict[int, Sharing] = {}
    for stage in range(placement.length if placement.chains > 1 else 0):
        twins = placement.replicas_of(stage)
        group = _group(placement, twins)
        here = [twin for twin in twins if twin in modules]
        copies = _distinct(
            tuple(weight for name, weight in modules[twin].named_parameters() if (stage, name) not in tied)
            for twin in here
        )
        sharing = Sharing(copies, group)
        if here:
            _make_equal(sharing, list(modules[here[0]].buffers()))
        replicas |= dict.fromkeys(here, sharing)
    found = []
    for tie in ties:
        stages = tuple(twin for stage, _ in tie for twin in placement.replicas_of(stage))
        group = _group(placement, stages)
        names = {twin: name for stage, name in tie for twin in placement.replicas_of(stage)}
        copies = _distinct((modules[twin].get_parameter(name),) for twin, name in names.items() if twin in modules)
        if copies:
            found.append(Sharing(copies, group))
            _make_equal(found[-1], [])
    return Shared(replicas, found)


def _group(placement: Placement, stages: Sequence[int]) -> dist.ProcessGroup | None:
    ranks = sorted({placement.ranks_of_stages[stage] for stage in stages})
    return dist.new_group(ranks) if len(ranks) > 1 else None


def _distinct(copies: Iterable[tuple[nn.Parameter, ...]]) -> tuple[tuple[nn.Parameter, ...], ...]:
    found: dict[tuple[int, ...], tuple[nn.Parameter, ...]] = {}
    for copy in copies:
        found.setdefault(tuple(map(id, copy)), copy)
    return tuple(found.values())


def _make_equal(sharing: Sharing, buffers: Sequence[torch.Tensor]) -> None:
    first, *others = sharing.copies
    if sharing.group is not None:
        source = min(dist.get_process_group_ranks(sharing.group))
        for tensor in [*first, *buffers]:
            dist.broadcast(tensor.detach(), source, group=sharing.group)
    with torch.no_grad():
        for copy in others:
            for weight, original in zip(copy, first, strict=True):
                weight.copy_(original)
