"""Laws that hold whatever the requests: nothing lost, tokens conserved, cache never above its limit, Little's law."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.serving.group import Rules
from pipesim.serving.requests import Lengths, Requests, at_once, poisson
from pipesim.serving.results import served
from pipesim.serving.simulator import Run, run
from tests.serving.flat import flat_instance

REQUEST = st.tuples(st.floats(0.0, 30.0), st.integers(1, 60), st.integers(1, 40))


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Requests, Rules, int, int]:
    """Random requests, rules under which each of them fits, stages and groups."""
    rows = sorted(draw(st.lists(REQUEST, min_size=1, max_size=25)))
    arrivals, prompts, outputs = (np.array(column) for column in zip(*rows, strict=True))
    concurrency = draw(st.none() | st.integers(1, 6))
    block = draw(st.sampled_from((1, 4, 16)))
    batch = draw(st.integers(1, 12))
    reserves = draw(st.booleans())
    rules = Rules(
        batch=batch,
        tokens=draw(st.integers(batch, 80)),
        blocks=-(-100 // block) + draw(st.integers(0, 30)),
        block_tokens=block,
        chunked=draw(st.booleans()),
        reserves=reserves,
        prefilled=not reserves and concurrency is None and bool(min(outputs) > 1) and draw(st.booleans()),
    )
    requests = Requests(arrivals.astype(float), prompts.astype(np.int64), outputs.astype(np.int64), concurrency)
    return requests, rules, draw(st.integers(1, 4)), draw(st.integers(1, 5))


def simulate(workload: tuple[Requests, Rules, int, int]) -> Run:
    requests, rules, stages, groups = workload
    return run(requests, flat_instance(stages=stages, groups=groups, step=0.05, token=0.002, hop=0.01), rules)


@given(workloads())
def test_no_request_is_lost_and_none_is_served_before_it_came(workload: tuple[Requests, Rules, int, int]) -> None:
    found = simulate(workload)
    arrived, first, done = (np.array(x) for x in (found.arrived_s, found.batcher.first_s, found.batcher.done_s))
    assert (arrived <= np.array(found.batcher.admitted_s) + 1e-12).all()
    assert (np.array(found.batcher.admitted_s) <= first + 1e-12).all()
    assert (first <= done + 1e-12).all()
    assert found.batcher.done == len(workload[0])
    assert not found.batcher.waiting
    assert found.batcher.running == 0


@given(workloads())
def test_tokens_are_conserved(workload: tuple[Requests, Rules, int, int]) -> None:
    """Without preemption each prompt is read once, and every token but the first of a request is decoded once."""
    requests, rules, _, _ = workload
    found = simulate(workload)
    read, decoded = sum(found.steps.prompt_tokens), sum(found.steps.decoding)
    lost = np.array(found.batcher.preempted)
    if not lost.any():
        assert read == (0 if rules.prefilled else int(requests.prompt.sum()))
        assert decoded == int((requests.output - 1).sum())
    else:  # what was made is kept, and read again as a part of the prompt
        assert decoded <= int((requests.output - 1).sum())
        assert read + decoded >= int((requests.output - 1).sum())
        assert not rules.reserves


@given(workloads())
def test_the_cache_never_holds_more_than_it_has_and_ends_empty(workload: tuple[Requests, Rules, int, int]) -> None:
    found = simulate(workload)
    assert max(found.steps.blocks) <= workload[1].blocks
    assert found.batcher.cache.most <= workload[1].blocks
    assert found.batcher.cache.used == 0
    assert all(group.requests == 0 and group.cached == 0 and not any(group.grows) for group in found.batcher.groups)


@given(workloads())
def test_limits_of_a_step_are_kept(workload: tuple[Requests, Rules, int, int]) -> None:
    _, rules, _, groups = workload
    found = simulate(workload)
    assert max(found.steps.running) <= rules.batch
    if rules.chunked:
        whole = np.array(found.steps.decoding) + np.array(found.steps.prompt_tokens)
        assert whole.max() <= rules.tokens
    starts, ends = np.array(found.steps.start_s), np.array(found.steps.end_s)
    for group in range(groups):  # a group's step never starts before its last one has come back
        mine = np.array(found.steps.group) == group
        back = 0.01  # as every edge, also that of a single stage to itself
        assert (starts[mine][1:] >= ends[mine][:-1] + back - 1e-9).all()


@given(workloads())
def test_little_s_law(workload: tuple[Requests, Rules, int, int]) -> None:
    """Requests in the system, counted over time, are their rate times the time that each spends in it."""
    found = simulate(workload)
    arrived, done = np.array(found.arrived_s), np.array(found.batcher.done_s)
    times = np.concatenate([arrived, done])
    change = np.concatenate([np.ones(len(arrived)), -np.ones(len(done))])
    order = np.lexsort((-change, times))
    there = np.cumsum(change[order])
    assert there.min() >= 0
    duration = times.max() - times.min()
    average = float((there[:-1] * np.diff(times[order])).sum()) / duration
    figures = served([found], gpus=1)
    assert average == pytest.approx(len(arrived) / duration * float((done - arrived).mean()))
    assert figures.in_system == pytest.approx(average)


def test_the_count_that_steps_log_is_the_count_by_arrivals_and_ends() -> None:
    """What the loop believes to be there is what has come and not yet been told as done."""
    stream = poisson(rate=2.0, duration_s=60, prompt=Lengths(20, 0.5), output=Lengths(20, 0.5), seed=3)
    found = run(stream, flat_instance(stages=1, groups=1, step=0.05), Rules(batch=8, tokens=64, blocks=64))
    arrived, done = np.array(found.arrived_s), np.array(found.batcher.done_s)
    starts = np.array(found.steps.start_s)
    expected = [(arrived <= at + 1e-12).sum() - (done <= at + 1e-12).sum() for at in starts]
    logged = np.array(found.steps.running) + np.array(found.steps.waiting)
    np.testing.assert_array_equal(logged, expected)


def test_a_closed_loop_always_has_as_many_requests_as_clients() -> None:
    found = run(
        at_once(count=40, prompt=8, output=6, concurrency=5), flat_instance(stages=2, groups=2, step=0.1),
        Rules(batch=8, tokens=64, blocks=200),
    )  # fmt: skip
    figures = served([found], gpus=2)
    assert figures.in_system == pytest.approx(5.0, rel=0.1)
    assert figures.overload is None


def test_when_blocks_run_out_the_last_admitted_loses_its_own_and_is_served_later() -> None:
    requests = Requests(np.zeros(3), np.full(3, 8), np.full(3, 24))
    found = run(requests, flat_instance(stages=1, groups=1), Rules(batch=3, tokens=64, blocks=17, block_tokens=4))
    assert found.batcher.preempted == [0, 0, 1]
    assert found.batcher.done_s[2] > max(found.batcher.done_s[:2])


def test_with_reserved_blocks_nothing_is_preempted() -> None:
    requests = Requests(np.zeros(3), np.full(3, 8), np.full(3, 24))
    rules = Rules(batch=3, tokens=64, blocks=14, block_tokens=4, reserves=True)
    found = run(requests, flat_instance(stages=1, groups=1), rules)
    assert found.batcher.preemptions == 0
    assert max(found.steps.running) == 1


def test_prompts_are_cut_to_the_room_in_a_step() -> None:
    requests = Requests(np.zeros(2), np.array([10, 50]), np.array([5, 2]))
    found = run(requests, flat_instance(stages=1, groups=1), Rules(batch=4, tokens=16, blocks=100))
    assert sum(found.steps.prompt_tokens) == 60
    assert max(a + b for a, b in zip(found.steps.decoding, found.steps.prompt_tokens, strict=True)) == 16


def test_whole_prompts_have_steps_of_their_own() -> None:
    requests = Requests(np.zeros(2), np.array([10, 50]), np.array([5, 2]))
    found = run(requests, flat_instance(stages=1, groups=1), Rules(batch=4, tokens=16, blocks=100, chunked=False))
    assert [t for t in found.steps.prompt_tokens if t] == [10, 50]
    assert all(not (d and t) for d, t in zip(found.steps.decoding, found.steps.prompt_tokens, strict=True))
