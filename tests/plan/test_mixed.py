"""Clusters whose nodes differ: layers and order of nodes are chosen for them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations

import pytest

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.clusters.cluster_catalogue import cluster_of, load_cluster
from pipesim.costs.estimate import estimate
from pipesim.costs.models.model_catalog import load_model
from pipesim.engine import direct
from pipesim.ir.placement import linear
from pipesim.plan.evaluate import evaluate, placed, priced
from pipesim.plan.mixed import arranged, blocks, fitted, looks_right, slowest_first
from pipesim.plan.planner import search
from pipesim.plan.request import Request
from pipesim.plan.space import Choice, Core, choices, cores
from pipesim.schedules.one_f_one_b import one_f_one_b

FAST = load_cluster("dgx-h100:1").nodes[0]
SLOW = load_cluster("dgx-a100:1").nodes[0]
CORE = Core(tp=8, cp=1, ep=1, micro_batch=1, sequence_parallel=True, recompute="none")


def mixed(*nodes) -> Cluster:
    return cluster_of("mixed", list(nodes))


def request(cluster: Cluster, **given) -> Request:
    usual = {"model": load_model("gpt2-large"), "global_batch": 8, "seq": 1024, "schedules": ("1f1b",)}
    return Request(cluster=cluster, **(usual | given))


def choice(pp: int, dp: int = 1) -> Choice:
    return Choice(core=replace(CORE, tp=4), pp=pp, dp=dp, schedule="1f1b", virtual=None, zero=0, split="fitted")


def test_blocks_are_of_one_kind_with_the_slowest_first():
    cluster = mixed(FAST, SLOW, FAST, SLOW)
    order = slowest_first(cluster)
    assert order == (1, 3, 0, 2)
    assert [[node.name for node in block] for block in blocks(arranged(cluster, order), 2)] == [
        ["dgx-a100", "dgx-a100"],
        ["dgx-h100", "dgx-h100"],
    ]
    assert looks_right(arranged(cluster, order), 1)
    assert not looks_right(cluster, 1)  # a fast GPU would stand for a block that waits for slow ones


def test_order_and_split_are_as_good_as_any_that_is_simulated():
    """Every order of the nodes and every split, simulated: none beats the fitted one by more than messages do."""
    asked = request(mixed(FAST, SLOW, FAST))
    model = replace(asked.model, layers=7)
    asked = replace(asked, model=model)
    chosen = replace(choice(3), core=replace(CORE, tp=4), dp=2)
    assert evaluate(asked, chosen).verdict == "fits"
    fit = fitted(asked, chosen)
    assert fit is not None
    layout, _ = placed(asked, chosen)
    schedule, made = priced(asked, chosen)
    found = direct.step(schedule, made.costs, reduce=True, clip=True).makespan_s
    times = []
    for order in permutations(range(3)):
        for cuts in combinations(range(1, 7), 2):
            layers = (cuts[0], cuts[1] - cuts[0], 7 - cuts[1])
            other = estimate(
                model, arranged(asked.cluster, order), replace(layout, split=layers), linear(3), contention=False
            )
            pipeline = one_f_one_b(ranks=3, microbatches=layout.microbatches)
            times.append(direct.step(pipeline, other.costs, reduce=True, clip=True).makespan_s)
    assert found <= min(times) * 1.06


def test_fast_nodes_get_more_layers():
    asked = request(mixed(FAST, SLOW), model=load_model("llama-3-8b"), seq=4096)
    fit = fitted(asked, replace(choice(2), dp=2))
    assert fit is not None
    by_node = {asked.cluster.nodes[node].name: layers for node, layers in zip(fit.nodes, fit.layers, strict=True)}
    assert by_node["dgx-h100"] > 1.5 * by_node["dgx-a100"]
    assert sum(fit.layers) == 32


@pytest.mark.parametrize(
    "cluster", [mixed(FAST, SLOW), mixed(replace(FAST, gpus=4, ports=4), SLOW, SLOW)], ids=["kinds", "sizes"]
)
def test_planner_finds_what_trying_everything_finds(cluster):
    asked = request(cluster, tp=(2, 4), pp=(1, 2, 4), micro_batch=(1,), zero=(0, 1), sequence_parallel=(True,))
    if cluster.devices == 20:
        asked = replace(asked, pp=(1, 5), global_batch=20)
    tried = [evaluate(asked, one) for core in cores(asked) for one in choices(asked, core)]
    best = sorted((one for one in tried if one.verdict == "fits"), key=lambda one: one.rank)[:5]
    assert best
    found = search(asked, top=5)
    assert [(one.choice, one.step_time_s) for one in found.best] == [(one.choice, one.step_time_s) for one in best]
    assert {"fitted"} & {one.choice.split for one in tried if one.verdict != "unsuitable"}


def test_stages_smaller_than_a_node_stay_together():
    asked = request(mixed(FAST, SLOW))
    fit = fitted(asked, replace(choice(8), core=replace(CORE, tp=2)))
    assert fit is not None
    assert sorted(fit.nodes) == [0, 1]
    assert len(fit.layers) == 8
