"""Costs of a run from measurements: each stage alone, the links, and what the host adds to every action."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pipesim.backends.execute.runner import AnyStage, Gradients
from pipesim.backends.execute.timer import Timer
from pipesim.backends.measure.links import LinkTimes
from pipesim.backends.memory import HeldBytes
from pipesim.backends.stage import Stage
from pipesim.backends.trees import Tree, flatten, unflatten
from pipesim.ir.action import COMPUTE, Kind
from pipesim.ir.needs import Flow
from pipesim.ir.placement import Placement
from pipesim.ir.program import Program
from pipesim.timeline import Timeline


@dataclass(frozen=True)
class StageProfile:
    """Medians of one stage: seconds by kind, bytes held after a forward and after an input gradient."""

    seconds: dict[Kind, float]
    activation_bytes: int = 0
    kept_bytes: int = 0
    weights_bytes: int = 0


@dataclass
class Given:
    """What a stage was given for one microbatch or slice."""

    inputs: Tree
    options: dict[str, Any]
    gradients: Gradients = field(default_factory=list)


class Captured:
    """Stands before a stage during a step and keeps what its first microbatch was given, slice by slice."""

    def __init__(self, stage: AnyStage) -> None:
        self.stage = stage
        self.given: dict[tuple[int, int], Given] = {}

    def forward(self, key: tuple[int, int], inputs: Tree, **options: Any) -> Tree:
        if key[0] == next(iter(self.given), key)[0]:
            self.given[key] = Given(_copy(inputs), options)
        return self.stage.forward(key, inputs, **options)

    def backward(self, key: tuple[int, int], gradients: Gradients) -> Gradients:
        self._keep(key, gradients)
        return self.stage.backward(key, gradients)

    def input_gradient(self, key: tuple[int, int], gradients: Gradients) -> Gradients:
        self._keep(key, gradients)
        return self.stage.input_gradient(key, gradients)

    def weight_gradient(self, key: tuple[int, int]) -> None:
        self.stage.weight_gradient(key)

    def held_bytes(self) -> HeldBytes:
        return self.stage.held_bytes()

    def _keep(self, key: tuple[int, int], gradients: Gradients) -> None:
        if key in self.given:
            self.given[key].gradients = [None if one is None else one.detach().clone() for one in gradients]


def _copy(tree: Tree) -> Tree:
    tensors, holes = flatten(tree)
    return unflatten(holes, [one.detach().clone().requires_grad_(one.requires_grad) for one in tensors])


Samples = dict[tuple[int, Kind], list[float]]  # seconds by stage and kind


def time_stages(captured: Mapping[int, Captured], timer: Timer, *, repeats: int, split: bool) -> Samples:
    """Time F, B and then (`split`) F, I, W of each stage of this rank by itself, `repeats` times in turn.

    All ranks do it at the same time, so that they load the machine as a run does.
    """
    marks: dict[tuple[int, Kind], list[tuple[Any, Any]]] = {}
    timer.start()
    for _ in range(repeats):
        for number, one in captured.items():
            for kind, action in _actions(one, split):
                begin = timer.mark()
                action()
                marks.setdefault((number, kind), []).append((begin, timer.mark()))
    return {where: _seconds(timer, pairs) for where, pairs in marks.items()}


def profiles(captured: Mapping[int, Captured], samples: Sequence[Samples]) -> dict[int, StageProfile]:
    """Medians of what was timed, and the bytes of each stage."""
    found = {}
    for number, one in captured.items():
        seconds: dict[Kind, float] = {}
        for kind in COMPUTE:
            values = [value for each in samples for value in each.get((number, kind), ())]
            if values:
                seconds[kind] = statistics.median(values)
        found[number] = StageProfile(seconds, *_bytes(one, Kind.I in seconds))
    return found


def _actions(one: Captured, split: bool) -> list[tuple[Kind, Callable[[], None]]]:
    """A microbatch's actions, all its slices together."""
    whole: list[tuple[Kind, Callable[[], None]]] = [
        (Kind.F, lambda: _forward(one, split=False)),
        (Kind.B, lambda: _backward(one, one.stage.backward)),
    ]
    halves: list[tuple[Kind, Callable[[], None]]] = [
        (Kind.F, lambda: _forward(one, split=True)),
        (Kind.I, lambda: _backward(one, one.stage.input_gradient)),
        (Kind.W, lambda: _weights(one)),
    ]
    return whole + halves if split else whole


def _forward(one: Captured, *, split: bool) -> None:
    for key, given in one.given.items():
        one.stage.forward(key, given.inputs, **(given.options | {"split": split}))


def _backward(one: Captured, differentiate: Callable[[tuple[int, int], Gradients], Gradients]) -> None:
    for key, given in reversed(one.given.items()):
        differentiate(key, given.gradients)


def _weights(one: Captured) -> None:
    for key in one.given:
        one.stage.weight_gradient(key)


def _seconds(timer: Timer, pairs: Sequence[tuple[Any, Any]]) -> list[float]:
    begins = timer.nanoseconds([begin for begin, _ in pairs])
    ends = timer.nanoseconds([end for _, end in pairs])
    return [(end - begin) * 1e-9 for begin, end in zip(begins, ends, strict=True)]


def _bytes(one: Captured, split: bool) -> tuple[int, int, int]:
    """Bytes held after a forward and after an input gradient, and of the weights."""
    stage = one.stage
    weights = 0
    if isinstance(stage, Stage):
        weights = sum(weight.nbytes for weight in stage.module.parameters())
        stage.options = replace(stage.options, track_memory=True)
    _forward(one, split=split)
    activation, kept = stage.held_bytes().total, 0
    if split:
        _backward(one, stage.input_gradient)
        kept = stage.held_bytes().total
        _weights(one)
    else:
        _backward(one, stage.backward)
    if isinstance(stage, Stage):
        stage.options = replace(stage.options, track_memory=False)
        for weight in stage.parameters():
            weight.grad = None
    return activation, kept, weights


@dataclass(frozen=True)
class HostTimes:
    """What the host adds: to every action, and to every message beside its bytes."""

    action_s: float
    message_s: float


def host_times(timeline: Timeline) -> HostTimes:
    """From a run: the gap before an action whose input was long there, and the one after the action on another
    rank whose result was waited for; means without the longest twentieth, which somebody else has caused."""
    program = timeline.program
    ops = program.ops
    gaps: list[float] = []
    waits: list[float] = []
    for rank in range(program.ranks):
        row = [op for op in program.row(rank) if ops.kind[op] <= Kind.W and not ops.fused[op]]
        for before, op in itertools.pairwise(row):
            made = [
                float(timeline.end[producer])
                for need in program.needs_of(op)
                if ops.kind[need] == Kind.RECV
                for producer in program.needs_of(int(program.match[need]))
            ]
            free, there = float(timeline.end[before]), max(made, default=-np.inf)
            gap = float(timeline.start[op]) - max(free, there)
            margin = 0.5 * float(timeline.end[op] - timeline.start[op])
            if there < free - margin:
                gaps.append(gap)
            elif there > free + margin:
                waits.append(gap)
    action = _typical(gaps)
    return HostTimes(action, max(_typical(waits) - action, 0.0))


def _typical(gaps: Sequence[float]) -> float:
    kept = sorted(gaps)[: max(1, round(0.95 * len(gaps)))]
    return max(statistics.fmean(kept), 0.0) if kept else 0.0


def costs_lists(
    placement: Placement, profiles: Sequence[Mapping[int, StageProfile]], sizes: Mapping[int, int], program: Program
) -> dict[str, list[float]]:
    """The columns of a costs file, by stage of the model; replicas of a stage are averaged."""
    by_stage: dict[int, list[StageProfile]] = {}
    for rank in profiles:
        for stage, profile in rank.items():
            by_stage.setdefault(stage % placement.length, []).append(profile)
    ordered = [by_stage[stage] for stage in range(placement.length)]
    lists = {
        kind.name: [statistics.fmean(one.seconds[kind] for one in stage) for stage in ordered]
        for kind in ordered[0][0].seconds
    }
    lists["activation_bytes"] = [statistics.fmean(one.activation_bytes for one in stage) for stage in ordered]
    lists["released_at_input"] = [
        statistics.fmean(max(0.0, 1 - one.kept_bytes / max(one.activation_bytes, 1)) for one in stage)
        for stage in ordered
    ]
    lists["weights_bytes"] = [statistics.fmean(one.weights_bytes for one in stage) for stage in ordered]
    sent: dict[int, list[int]] = {}
    for op, size in sizes.items():
        if program.flow[op] in (Flow.ACTIVATION, Flow.GRADIENT):
            sent.setdefault(int(program.ops.stage[op]) % placement.length, []).append(size)
    lists["message_bytes"] = [
        statistics.fmean(sent[stage]) if stage in sent else 0.0 for stage in range(placement.length)
    ]
    return lists


def costs_numbers(host: HostTimes, links: LinkTimes | None) -> dict[str, float]:
    """The numbers of a costs file."""
    numbers = {"host_s": host.action_s, "latency_s": host.message_s}
    if links is not None and links.send_s:
        numbers["bytes_per_s"] = links.line()[1]
    return numbers
