"""The best contiguous split of layers over stages on devices of several kinds, and the best order of the kinds.

Minimises what a step of 1F1B takes at least on unequal stages: one microbatch through all stages and back, and
the slowest stage once more for every other microbatch (the objective of Alpa, 2201.12023, section 5.2). Exact:
for each possible slowest stage, a dynamic programme over (blocks used of each kind, layers so far) finds the
fastest way through, and slowest stages are tried from the fastest up, until they alone cost more than the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipesim.engine.compiled import compiled
from pipesim.errors import PipesimError

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]

NONE = -1  # inside compiled code only
_ROUNDING = 1e-12


@dataclass(eq=False)
class NoPartition(PipesimError):
    """No split keeps every stage within its memory."""

    layers: int
    blocks: int

    def __str__(self) -> str:
        return f"{self.layers} layers on {self.blocks} stages do not fit in memory however they are split"


@dataclass(frozen=True, eq=False)
class Problem:
    """Layers and the blocks of devices (one a stage) that they go on. K kinds of block, L layers.

    seconds: (K, L) of a layer's forward and backward; first_s, last_s: (K,) of embedding and head.
    hop_s: (K, K) of an activation and its gradient between neighbouring stages.
    count: (K,) blocks of each kind. order: the kind of each stage where it is fixed, else empty.
    microbatches: of one step. state_bytes, stored_bytes: (L,) held once, and of each microbatch in flight;
    end_bytes: (2, 2) the same of embedding and head. limit_bytes: (K,), infinite where nobody asks.
    """

    seconds: Floats
    first_s: Floats
    last_s: Floats
    hop_s: Floats
    count: Ints
    microbatches: int
    state_bytes: Floats
    stored_bytes: Floats
    end_bytes: Floats
    limit_bytes: Floats
    order: tuple[int, ...] = ()

    @property
    def stages(self) -> int:
        return int(self.count.sum())


@dataclass(frozen=True)
class Partition:
    """Layers of each stage and its kind of block; the step time by the objective above, and its slowest stage."""

    layers: tuple[int, ...]
    kinds: tuple[int, ...]
    step_s: float
    slowest_s: float


def partition(problem: Problem) -> Partition:
    """The best split and order. Raises NoPartition."""
    slowest = _candidates(problem)
    fastest_way = _through(problem, np.inf)
    if fastest_way is None:
        raise NoPartition(problem.seconds.shape[1], problem.stages)
    others = problem.microbatches - 1
    low, high = 0, len(slowest) - 1
    while low < high:  # the least slowest stage with which there is a way at all
        middle = (low + high) // 2
        low, high = (low, middle) if _through(problem, slowest[middle]) is not None else (middle + 1, high)
    best = None
    for limit_s in slowest[low:]:
        if best is not None and fastest_way[0] + others * limit_s >= best.step_s:
            break
        found = _through(problem, limit_s)
        assert found is not None  # a higher limit allows all that a lower one does
        through_s, layers, kinds = found
        actual = _slowest(problem, layers, kinds)
        step_s = through_s + others * actual
        if best is None or step_s < best.step_s * (1 - _ROUNDING):
            best = Partition(layers, kinds, step_s, actual)
    assert best is not None
    return best


def step_seconds(problem: Problem, layers: tuple[int, ...], kinds: tuple[int, ...]) -> float:
    """The objective for one split and order."""
    times = _stage_times(problem, layers, kinds)
    hops = sum(float(problem.hop_s[one, other]) for one, other in pairwise(kinds))
    return float(times.sum()) + hops + (problem.microbatches - 1) * float(times.max())


def fits(problem: Problem, layers: tuple[int, ...], kinds: tuple[int, ...]) -> bool:
    """Whether every stage stays within its memory."""
    ends = np.cumsum((0, *layers))
    for stage, kind in enumerate(kinds):
        mine = slice(int(ends[stage]), int(ends[stage + 1]))
        in_flight = min(problem.stages - stage, problem.microbatches)
        held = problem.state_bytes[mine].sum() + in_flight * problem.stored_bytes[mine].sum()
        if stage == 0:
            held += problem.end_bytes[0, 0] + in_flight * problem.end_bytes[0, 1]
        if stage == problem.stages - 1:
            held += problem.end_bytes[1, 0] + in_flight * problem.end_bytes[1, 1]
        if held > problem.limit_bytes[kind]:
            return False
    return True


def _stage_times(problem: Problem, layers: tuple[int, ...], kinds: tuple[int, ...]) -> Floats:
    ends = np.cumsum((0, *layers))
    times = np.array([problem.seconds[kind, ends[stage] : ends[stage + 1]].sum() for stage, kind in enumerate(kinds)])
    times[0] += problem.first_s[kinds[0]]
    times[-1] += problem.last_s[kinds[-1]]
    return times


def _slowest(problem: Problem, layers: tuple[int, ...], kinds: tuple[int, ...]) -> float:
    return float(_stage_times(problem, layers, kinds).max())


def _candidates(problem: Problem) -> Floats:
    """Every time that a stage could take, in order."""
    found = []
    for kind, seconds in enumerate(problem.seconds):
        ends = np.concatenate([[0.0], np.cumsum(seconds)])
        first, last = np.triu_indices(len(ends), 1)
        times = ends[last] - ends[first]
        times = times + np.where(first == 0, problem.first_s[kind], 0.0)
        found.append(times + np.where(last == len(seconds), problem.last_s[kind], 0.0))
    return np.unique(np.concatenate(found)) * (1 + _ROUNDING)


def _through(problem: Problem, slowest_s: float) -> tuple[float, tuple[int, ...], tuple[int, ...]] | None:
    """The fastest way of one microbatch through all stages of which none takes longer than `slowest_s`."""
    kinds, layers = problem.seconds.shape
    ends = np.zeros((kinds, layers + 1))
    ends[:, 1:] = np.cumsum(problem.seconds, axis=1)
    held = np.zeros((2, layers + 1))
    held[:, 1:] = np.cumsum([problem.state_bytes, problem.stored_bytes], axis=1)
    order = np.array(problem.order or [NONE] * problem.stages)
    used = np.prod(problem.count + 1)
    best = np.full((used, layers + 1, kinds), np.inf)
    before = np.full((used, layers + 1, kinds), NONE, np.int64)
    _programme(
        ends, problem.first_s, problem.last_s, problem.hop_s, problem.count, order, problem.microbatches,
        held, problem.end_bytes, problem.limit_bytes, slowest_s, best, before,
    )  # fmt: skip
    last = int(np.argmin(best[-1, layers]))
    if np.isinf(best[-1, layers, last]):
        return None
    return float(best[-1, layers, last]), *_read_back(problem, before, last)


def _read_back(problem: Problem, before: Ints, kind: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers and kinds of the stages that led to the end."""
    kinds, layers = problem.seconds.shape
    strides = _strides(problem.count)
    used, end = int(np.prod(problem.count + 1)) - 1, layers
    found: list[tuple[int, int]] = []
    while used:
        start, earlier = divmod(int(before[used, end, kind]), kinds)
        found.append((end - start, kind))
        used, end, kind = used - int(strides[kind]), start, earlier
    sizes, which = zip(*found[::-1], strict=True)
    return sizes, which


@compiled
def _strides(count: Ints) -> Ints:
    """What one block more of each kind adds to the number of a state."""
    strides = np.ones(len(count), np.int64)
    for kind in range(len(count) - 2, -1, -1):
        strides[kind] = strides[kind + 1] * (count[kind + 1] + 1)
    return strides


@compiled
def _programme(
    ends: Floats,
    first_s: Floats,
    last_s: Floats,
    hop_s: Floats,
    count: Ints,
    order: Ints,
    microbatches: int,
    held: Floats,
    end_bytes: Floats,
    limit_bytes: Floats,
    slowest_s: float,
    best: Floats,
    before: Ints,
) -> None:
    """Fill in the least seconds to (blocks used, layers placed, kind of the last block), and where from."""
    states, kinds, layers, stages = len(best), len(count), ends.shape[1] - 1, int(count.sum())
    strides = _strides(count)
    for state in range(states):
        stage = 0
        for kind in range(kinds):
            stage += state // strides[kind] % (count[kind] + 1)
        in_flight = min(stages - stage, microbatches)
        for at in range(layers if stage else 1):
            for last in range(kinds if stage else 1):
                so_far = best[state, at, last] if stage else 0.0
                if np.isinf(so_far):
                    continue
                for kind in range(kinds):
                    full = state // strides[kind] % (count[kind] + 1) == count[kind]
                    if full or (order[stage] != NONE and order[stage] != kind):
                        continue
                    hop = hop_s[last, kind] if stage else 0.0
                    most = layers - (stages - stage - 1)  # a layer for every stage to come
                    for end in range(layers if stage == stages - 1 else at + 1, most + 1):
                        seconds = ends[kind, end] - ends[kind, at]
                        size = held[0, end] - held[0, at] + in_flight * (held[1, end] - held[1, at])
                        if stage == 0:
                            seconds += first_s[kind]
                            size += end_bytes[0, 0] + in_flight * end_bytes[0, 1]
                        if stage == stages - 1:
                            seconds += last_s[kind]
                            size += end_bytes[1, 0] + in_flight * end_bytes[1, 1]
                        if seconds > slowest_s or size > limit_bytes[kind]:
                            break  # more layers take longer and hold more
                        value = so_far + hop + seconds
                        after = state + strides[kind]
                        if value < best[after, end, kind]:
                            best[after, end, kind] = value
                            before[after, end, kind] = at * kinds + last
