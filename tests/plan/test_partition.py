"""The dynamic programme against trying every split and every order."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesim.costs.layouts.split import balanced
from pipesim.plan.partition import NoPartition, Problem, fits, partition, step_seconds


def at_random(seed: int, *, layers: int, count: tuple[int, ...], microbatches: int, tight: bool) -> Problem:
    draw = np.random.default_rng(seed)
    kinds = len(count)
    speed = draw.uniform(0.5, 3.0, kinds)
    return Problem(
        seconds=draw.uniform(0.5, 1.5, layers) * speed[:, None],
        first_s=draw.uniform(0, 2, kinds),
        last_s=draw.uniform(0, 2, kinds),
        hop_s=draw.uniform(0, 0.5, (kinds, kinds)),
        count=np.array(count),
        microbatches=microbatches,
        state_bytes=draw.uniform(1, 2, layers),
        stored_bytes=draw.uniform(0.1, 0.3, layers),
        end_bytes=draw.uniform(0, 1, (2, 2)),
        limit_bytes=draw.uniform(4, 8, kinds) if tight else np.full(kinds, np.inf),
    )


def every_way(problem: Problem):
    layers, stages = problem.seconds.shape[1], problem.stages
    kinds = [kind for kind, count in enumerate(problem.count) for _ in range(count)]
    for order in {problem.order} if problem.order else set(permutations(kinds)):
        for cuts in combinations(range(1, layers), stages - 1):
            yield tuple(np.diff([0, *cuts, layers]).tolist()), order


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    layers=st.integers(4, 8),
    count=st.lists(st.integers(1, 2), min_size=1, max_size=2).map(tuple),
    microbatches=st.integers(1, 12),
    tight=st.booleans(),
    fixed=st.booleans(),
)
def test_finds_what_trying_everything_finds(seed, layers, count, microbatches, tight, fixed):
    problem = at_random(seed, layers=layers, count=count, microbatches=microbatches, tight=tight)
    if fixed:
        kinds = [kind for kind, blocks in enumerate(count) for _ in range(blocks)]
        problem = replace(problem, order=tuple(np.random.default_rng(seed).permutation(kinds).tolist()))
    possible = [way for way in every_way(problem) if fits(problem, *way)]
    if not possible:
        with pytest.raises(NoPartition):
            partition(problem)
        return
    found = partition(problem)
    assert fits(problem, found.layers, found.kinds)
    assert found.step_s == pytest.approx(step_seconds(problem, found.layers, found.kinds))
    assert found.step_s == pytest.approx(min(step_seconds(problem, *way) for way in possible))


def test_equal_devices_and_many_microbatches_balance_as_the_layers_rule_does():
    """With one kind of device and an endless batch only the slowest stage counts."""
    costs = [3.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 4.0]
    problem = Problem(
        np.array([costs]), np.zeros(1), np.zeros(1), np.zeros((1, 1)), np.array([3]), 10_000,
        np.zeros(8), np.zeros(8), np.zeros((2, 2)), np.full(1, np.inf),
    )  # fmt: skip
    found = partition(problem)
    slowest = max(sum(part) for part in np.split(costs, np.cumsum(balanced(costs, 3))[:-1]))
    assert found.slowest_s == slowest


def test_a_device_twice_as_fast_gets_twice_the_layers():
    problem = Problem(
        np.array([np.full(12, 1.0), np.full(12, 2.0)]), np.zeros(2), np.zeros(2), np.zeros((2, 2)), np.array([1, 1]),
        64, np.zeros(12), np.zeros(12), np.zeros((2, 2)), np.full(2, np.inf),
    )  # fmt: skip
    found = partition(problem)
    assert dict(zip(found.kinds, found.layers, strict=True)) == {0: 8, 1: 4}


def test_eighty_layers_on_sixteen_blocks_of_two_kinds_take_no_time_to_speak_of():
    problem = at_random(3, layers=80, count=(8, 8), microbatches=64, tight=False)
    found = partition(problem)
    assert sum(found.layers) == 80
    assert sorted(found.kinds) == [0] * 8 + [1] * 8


def test_says_when_nothing_fits():
    problem = replace(at_random(1, layers=4, count=(2,), microbatches=4, tight=False), limit_bytes=np.array([0.5]))
    with pytest.raises(NoPartition, match="4 layers on 2 stages do not fit in memory however they are split"):
        partition(problem)
