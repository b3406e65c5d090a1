"""Repeating what repeats gives valid orders for any number of microbatches, at the cost of a few."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.ir.check import check
from pipesim.ir.placement import linear, vee
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.candidates import Pool
from pipesim.plan.search.construct import constructions, one_at_a_time
from pipesim.plan.search.orders import to_schedule
from pipesim.plan.search.periodic import extended, find_window, short_problem
from pipesim.plan.search.search import Effort, search
from tests.plan.search.problems import plain, random_problem


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
def test_an_extended_order_is_valid_and_within_its_limit(seed):
    problem, _ = random_problem(seed, most_ranks=3, most_microbatches=4)
    problem = problem.with_microbatches(12 * problem.placement.chains)  # of both chains, so that both need room
    problem = problem.with_limit(np.maximum(problem.memory.limit, problem.smallest_limit))
    short = Layout(problem)
    pool = Pool()
    pool.offer(one_at_a_time(short))
    for made in constructions(short, climbs=0, seed=0):
        pool.offer(made)
    long = Layout(problem.with_microbatches(24 * problem.placement.chains))
    window = find_window(short, pool.best.order)
    if window is not None:
        made = extended(short, pool.best.order, window, long, "extended")  # None where it does not fit the limit
        assert made is not None
        check(to_schedule(long, made.order, "extended"))
        assert made.end_s > pool.best.end_s


@pytest.mark.slow
def test_each_microbatch_more_costs_what_the_busiest_rank_takes():
    short, long = Layout(plain(vee(4), 16, limit=4)), Layout(plain(vee(4), 400, limit=4))
    ends = []
    for made in constructions(short, climbs=0, seed=0):
        window = find_window(short, made.order)
        more = None if window is None else extended(short, made.order, window, long, "")
        ends += [] if more is None else [more.end_s]
    assert min(ends) == 3 * 400 + 3 / 2  # the closed form of ZB-V


@pytest.mark.slow
def test_512_microbatches_take_no_longer_than_32():
    effort = Effort(climbs=50, rounds=3, exact_s=0)
    search(plain(linear(8), 32, (10, 12, 8, 1), 6), effort=effort)  # load what was compiled
    spent = {}
    for microbatches in (32, 512):
        begun = time.process_time()
        found = search(plain(linear(8), microbatches, (10, 12, 8, 1), 6), effort=effort)
        spent[microbatches] = time.process_time() - begun
        check(found.schedule, max_activations=6)
    assert spent[512] < 3 * spent[32] + 1  # a few evaluations are of all of them


@pytest.mark.parametrize(("ranks", "microbatches", "few"), [(4, 400, 28), (4, 24, 24), (16, 128, 56)])
def test_how_many_microbatches_are_searched(ranks, microbatches, few):
    found = short_problem(plain(vee(ranks), microbatches))
    assert found.microbatches == few
    assert (microbatches - few) % 12 == 0
