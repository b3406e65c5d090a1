"""Layouts for another number of GPUs: those of the planner, in its order."""

from __future__ import annotations

from pipesim.costs.clusters.cluster_catalogue import plain_cluster
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model_catalog import load_model
from pipesim.plan.planner import search
from pipesim.plan.relayout import layouts_by_time
from pipesim.plan.request import Request

MODEL = load_model("llama-3-8b")
JOB = Layout(pp=4, tp=4, dp=4, global_batch=64, seq=2048, precision="bf16")


def gpus(nodes: int, each: int = 8) -> object:
    return plain_cluster("h100-sxm", nodes=nodes, gpus_per_node=each, node_gbit_per_s=400.0 * each)


def test_they_are_the_planners_in_its_order() -> None:
    found = layouts_by_time(JOB, MODEL, gpus(4), schedule="1f1b")  # type: ignore[arg-type]
    request = Request(
        model=MODEL, cluster=gpus(4), global_batch=64, seq=2048, schedules=("1f1b",), micro_batch=(1,), zero=(0,),
        recompute=("none",), sequence_parallel=(False,), splits=("even",), cp=(1,), ep=(1,), tp_across_nodes=True,
    )  # type: ignore[arg-type]  # fmt: skip
    best = search(request, top=3).best
    assert [(one.layout.pp, one.layout.tp, one.layout.dp, one.step_time_s) for one in found[:3]] == [
        (one.choice.pp, one.choice.core.tp, one.choice.dp, one.step_time_s) for one in best
    ]
    times = [one.step_time_s for one in found]
    assert times == sorted(times)
    assert {one.layout.gpus for one in found} == {32}
    assert {one.layout.global_batch for one in found} == {64}


def test_only_those_that_fit() -> None:
    """18 bytes a parameter, of weights, gradients and optimizer states, are 145 GB; one GPU has 80 GB."""
    assert layouts_by_time(JOB, MODEL, gpus(1, 1), schedule="1f1b") == []  # type: ignore[arg-type]


def test_nothing_where_the_planner_knows_no_such_schedule() -> None:
    assert layouts_by_time(JOB, MODEL, gpus(4), schedule="my.py:build") == []  # type: ignore[arg-type]


def test_layers_that_are_counted_are_counted_anew() -> None:
    counted = Layout(pp=2, global_batch=64, seq=2048, precision="bf16", split=(15, 17))
    assert {one.layout.split for one in layouts_by_time(counted, MODEL, gpus(1), schedule="1f1b")} == {"balanced"}  # type: ignore[arg-type]
