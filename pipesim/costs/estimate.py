"""The analytic estimate: Model × Cluster × Layout → Costs of a schedule, with the breakdown behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.communication.pipeline_network import pipeline_network
from pipesim.costs.costs import Costs, Floats, StageBytes, Work
from pipesim.costs.layouts.flops import model_flops
from pipesim.costs.layouts.frameworks import closest_framework
from pipesim.costs.layouts.groups import Ranks, expert_groups, rank_groups
from pipesim.costs.layouts.layout import Layout, SplitRule
from pipesim.costs.layouts.split import StageLayers, split_layers
from pipesim.costs.memory import message_bytes, stage_memory
from pipesim.costs.models.model import Model
from pipesim.costs.times.habits import Habits, habits_of
from pipesim.costs.times.layer_times import stage_parts
from pipesim.costs.times.parts import COMMUNICATION, Part
from pipesim.costs.times.sharded import Update, update
from pipesim.costs.times.site import Groups, Site
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.ir.placement import Placement, linear


@dataclass(frozen=True, eq=False)
class Estimate:
    """Costs, and where they come from: the layers and the pieces of work of each stage."""

    costs: Costs
    stages: tuple[StageLayers, ...]
    parts: tuple[tuple[Part, ...], ...]  # of each stage of the model
    gather_s: Floats  # of each stage of the model: gathering of new weights, part of `costs.optimizer_s`
    sites: tuple[Site, ...]  # of each pipeline rank
    assumptions: tuple[str, ...]

    @property
    def layout(self) -> Layout:
        """As asked for, with the virtual stages of the placement."""
        return self.sites[0].layout


def estimate(
    model: Model,
    cluster: Cluster,
    layout: Layout,
    placement: Placement,
    *,
    contention: bool = True,
    habits: Habits | None = None,
) -> Estimate:
    """Costs of running `placement` under `layout`; its virtual stages are taken from the placement.

    contention: whether pipeline and gradient traffic share links. habits: what is fused and overlapped, if not as
    the layout's framework does it. Raises BadLayout.
    """
    layout = replace(layout, virtual=placement.length // placement.ranks or 1)
    layout.check_gpus(cluster.devices)
    layout.check_model(model)
    habits = habits or habits_of(layout.framework)
    stages = split_layers(model, layout)
    devices = [int(rank) for rank in rank_groups(layout, "pp")[0]]
    sites = [
        Site(model, layout, cluster, habits, cluster.gpu_of(device), groups)
        for device, groups in zip(devices, _groups(layout, devices), strict=True)
    ]
    placed = tuple(sites[rank] for rank in placement.ranks_of_stages[: placement.length])
    priced = _priced(placed, stages)
    parts = tuple(parts for parts, _ in priced)
    ends = [end for _, end in priced]
    message = message_bytes(model, layout)

    def of(values: Iterable[float]) -> Floats:
        return _twice(np.array(list(values)), placement)

    costs = Costs(
        placement.stages,
        {kind: _twice(values, placement) for kind, values in _seconds(parts, stages).items()},
        tensor_comm_s={kind: _twice(values, placement) for kind, values in _communication(parts).items()},
        message_bytes={flow: np.full(placement.stages, message) for flow in (Flow.ACTIVATION, Flow.GRADIENT)},
        network=pipeline_network(cluster, devices, message, host_s=habits.message_host_s, contention=contention),
        reduce_s=of(end.reduce_s for end in ends),
        optimizer_s=of(end.optimizer_s + end.gather_s for end in ends),
        held=_held(model, layout, cluster, stages, devices, placement),
        work=Work(
            layout.tokens_per_step,
            layout.gpus,
            model_flops(model, tokens=layout.tokens_per_step, seq=layout.seq),
            cluster.gpu_of(devices[0]).peak(layout.number_format.matrix),
        ),
    )
    gather_s = np.array([end.gather_s for end in ends])
    return Estimate(costs, stages, parts, gather_s, tuple(sites), _assumptions(layout, habits, contention))


def _priced(sites: Sequence[Site], stages: Sequence[StageLayers]) -> list[tuple[tuple[Part, ...], Update]]:
    """Work of each stage, and what follows its last backward; stages that are alike are priced once."""
    known: dict[object, tuple[tuple[Part, ...], Update]] = {}
    found = []
    for site, stage in zip(sites, stages, strict=True):
        kinds = site.model.kinds()[stage.first : stage.first + stage.layers]
        key = (kinds, stage.embedding, stage.head, site.gpu, *(_where(site, group) for group in astuple(site.groups)))
        if key not in known:
            parts = stage_parts(site, stage)
            forward, backward = sum(part.forward_s for part in parts), sum(part.backward_s for part in parts)
            known[key] = parts, update(site, stage, forward_s=forward, backward_s=backward)
        found.append(known[key])
    return found


def _where(site: Site, members: tuple[int, ...]) -> object:
    """What the time of a group's communication depends on."""
    if len(members) == 1:
        return None
    return site.cluster.span(members), site.cluster.route(members[0], members[1]).level


def _groups(layout: Layout, devices: Sequence[int]) -> list[Groups]:
    """The groups of each device."""
    axes = [rank_groups(layout, "tp"), rank_groups(layout, "cp"), expert_groups(layout, "ep")]
    axes += [rank_groups(layout, "dp", "cp"), rank_groups(layout, "pp")]
    return [Groups(*(_members(groups, device) for groups in axes)) for device in devices]


def _members(groups: Ranks, device: int) -> tuple[int, ...]:
    row = int(np.flatnonzero(groups.ravel() == device)[0]) // groups.shape[1]
    return tuple(groups[row].tolist())


def _seconds(parts: tuple[tuple[Part, ...], ...], stages: tuple[StageLayers, ...]) -> dict[Kind, Floats]:
    """F, I, W and B of each stage. The first stage has no input to differentiate: its I is free and its W
    the whole backward."""
    forward = np.array([sum(part.forward_s for part in stage) for stage in parts])
    inputs = np.array([sum(part.input_s for part in stage) for stage in parts])
    weights = np.array([sum(part.weight_s for part in stage) for stage in parts])
    whole = inputs + weights
    first = next(index for index, stage in enumerate(stages) if stage.first == 0)
    inputs[first], weights[first] = 0.0, whole[first]
    return {Kind.F: forward, Kind.B: whole, Kind.I: inputs, Kind.W: weights}


def _communication(parts: tuple[tuple[Part, ...], ...]) -> dict[Kind, Floats]:
    """The part of the seconds that is communication inside a stage."""
    mine = [[part for part in stage if part.group in COMMUNICATION] for stage in parts]
    forward = np.array([sum(part.forward_s for part in stage) for stage in mine])
    inputs = np.array([sum(part.input_s for part in stage) for stage in mine])
    return {Kind.F: forward, Kind.B: inputs, Kind.I: inputs, Kind.W: np.zeros(len(mine))}


def _twice(values: Floats, placement: Placement) -> Floats:
    """Values of the model's stages for every replica of them."""
    return np.tile(values, placement.chains)


def _held(
    model: Model,
    layout: Layout,
    cluster: Cluster,
    stages: tuple[StageLayers, ...],
    devices: list[int],
    placement: Placement,
) -> StageBytes:
    memory = [stage_memory(model, layout, stage) for stage in stages]
    framework = closest_framework(layout.framework)
    loose = 1 + framework.fragments

    def of(values: list[float], scale: float = loose) -> Floats:
        return _twice(np.array(values) * scale, placement)

    limits = [cluster.gpu_of(device).memory_bytes for device in devices]
    return StageBytes(
        weights=of([stage.states.weights for stage in memory]),
        gradients=of([stage.states.gradients for stage in memory]),
        optimizer=of([stage.states.optimizer for stage in memory]),
        activation=of([stage.activations.stored for stage in memory]),
        released_at_input=of([stage.activations.released_at_input for stage in memory], 1.0),
        workspace=of([stage.activations.working for stage in memory]),
        overhead=np.full(placement.ranks, framework.overhead_bytes),
        limit=np.array(limits, np.float64),
    )


def _assumptions(layout: Layout, habits: Habits, contention: bool) -> tuple[str, ...]:
    framework = closest_framework(layout.framework)
    shown = 1 - habits.tensor_overlap
    return (
        f"{shown:.0%} of tensor-parallel communication is inside a stage's time, the rest behind products",
        "gradients are reduced behind the last backward"
        if habits.reduce_overlap
        else "gradients are reduced after the last backward",
        "pipeline transfers share links fairly" if contention else "every pipeline transfer has its links to itself",
        f"{framework.fragments:.0%} of allocated memory is lost to fragments",
        f"usual settings of {framework.name}",
    )


def typical_times(model: Model, cluster: Cluster, layout: Layout) -> dict[str, float]:
    """Seconds of a rank's whole share of one microbatch, mean over ranks, and of one message between
    neighbours: what families need that build for the actual costs."""
    placement = linear(layout.pp)
    costs = estimate(model, cluster, replace(layout, split=_plain_split(layout)), placement).costs
    whole = costs.of_kind(Kind.B)
    weight = min(float(costs.of_kind(Kind.W)[-1]), float(whole.mean()))
    route = costs.network.route(0, min(1, layout.pp - 1))
    return {
        "forward": float(costs.of_kind(Kind.F).mean()),
        "input_grad": float(whole.mean()) - weight,
        "weight_grad": weight,
        "latency": route.seconds(message_bytes(model, layout)),
    }


def _plain_split(layout: Layout) -> SplitRule:
    """The layout's rule; a list of numbers is for its own stages, not for one stage a rank."""
    return "even" if isinstance(layout.split, tuple) else layout.split
