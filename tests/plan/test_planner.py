"""The planner against trying everything, and what it does at the edges."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache

import distributed
import pytest

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.layouts.layout import BadLayout
from pipesim.costs.models.model_catalog import load_model
from pipesim.plan.bounds import choice_bound_s, choice_memory_bytes, held, times
from pipesim.plan.evaluate import Outcome, evaluate
from pipesim.plan.planner import Found, search
from pipesim.plan.request import ImpossibleRequest, Request
from pipesim.plan.space import choices, cores


def request(**given) -> Request:
    usual = {
        "model": load_model("llama-3-8b"),
        "cluster": load_cluster("dgx-h100:1"),
        "global_batch": 16,
        "seq": 4096,
        "schedules": ("1f1b", "interleaved", "gpipe"),
        "micro_batch": (1, 2),
        "cp": (1,),
    }
    return Request(**(usual | given))


SMALL = {
    "little memory": request(seq=8192, max_memory_bytes=60e9, sequence_parallel=(True,)),
    "two kinds of link": request(
        model=load_model("gpt2-xl"), cluster=load_cluster("dgx-a100:2"), tp=(1, 2), micro_batch=(1,),
        recompute=("none", "full"),
    ),
    "experts": request(
        model=load_model("mixtral-8x7b"), cluster=load_cluster("dgx-h100:2"), global_batch=32, tp=(4,), pp=(2, 4),
        micro_batch=(1,),
    ),
    "blocking": request(comm="blocking", tp=(2,), cp=(1, 2), micro_batch=(1,)),
}  # fmt: skip


@cache
def everything(name: str) -> list[Outcome]:
    asked = SMALL[name]
    return [evaluate(asked, choice) for core in cores(asked) for choice in choices(asked, core)]


@pytest.mark.parametrize("name", SMALL)
def test_finds_what_trying_everything_finds(name):
    tried = everything(name)
    best = sorted((one for one in tried if one.verdict == "fits"), key=lambda one: one.rank)[:10]
    found = search(SMALL[name], top=10)
    assert [(one.choice, one.step_time_s) for one in found.best] == [(one.choice, one.step_time_s) for one in best]
    assert found.complete
    assert found.counts.enumerated == len(tried)
    assert found.counts.simulated < len(tried)


@pytest.mark.parametrize("name", SMALL)
def test_bounds_are_bounds(name):
    asked, least, checked = SMALL[name], cache(times), 0
    for outcome in everything(name):
        if outcome.verdict == "fits":
            choice = outcome.choice
            assert choice_bound_s(asked, choice, least(asked, choice.core)) <= outcome.step_time_s * (1 + 1e-9)
            assert choice_memory_bytes(asked, choice, held(asked, choice)) <= outcome.peak_bytes
            checked += 1
    assert checked > 5


def figures(found: Found) -> list[tuple[object, float]]:
    return [(one.choice, one.step_time_s) for one in found.best]


def test_any_executor_gives_the_same():
    asked = SMALL["little memory"]
    expected = figures(search(asked, top=5))
    with ThreadPoolExecutor(2) as pool:
        assert figures(search(asked, top=5, executor=pool, workers=2)) == expected


@pytest.mark.slow
def test_processes_and_a_dask_cluster_give_the_same():
    asked = SMALL["little memory"]
    expected = figures(search(asked, top=5))
    with ProcessPoolExecutor(2) as pool:
        assert figures(search(asked, top=5, executor=pool, workers=2)) == expected
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert figures(search(asked, top=5, executor=client.get_executor(), workers=2)) == expected


def test_interrupted_it_keeps_the_best_so_far():
    rounds = []

    def stop_at_third(counts, best):
        rounds.append(best)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    found = search(request(), progress=stop_at_third)
    assert not found.complete
    assert found.best[0] == rounds[-1]
    assert found.counts.simulated == 3


def test_nothing_fits():
    found = search(request(max_memory_bytes=8e9))
    assert found.best == ()
    assert found.smallest is not None
    assert found.smallest.peak_bytes > 8e9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tp": (3,)}, r"tp \[3\] does not divide 8 GPUs; 1, 2, 4, 8 do"),
        ({"pp": ()}, r"pp \[\]; give whole numbers from 1"),
        ({"schedules": ("pipedream",)}, "schedule pipedream cannot be planned with; these can: gpipe, 1f1b"),
        ({"recompute": ("some",)}, "recompute some; known: none, selective, full"),
    ],
)
def test_requests_that_nothing_can_meet(given, message):
    with pytest.raises(ImpossibleRequest, match=message):
        request(**given)


def test_batch_and_sequence_are_those_of_a_layout():
    with pytest.raises(BadLayout):
        request(global_batch=0)
