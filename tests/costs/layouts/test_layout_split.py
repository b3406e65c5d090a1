"""Layers to stages."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.costs.layouts.split import (
    SplitCosts,
    StageLayers,
    balanced,
    by_threshold,
    even,
    layers_per_stage,
    nanotron_costs,
    split_layers,
    split_note,
)
from pipesim.costs.models.model import Model
from pipesim.costs.models.model_catalog import load_model


def gpt(layers: int, **fields: object) -> Model:
    return Model.from_fields({"arch": "gpt", "layers": layers, "hidden": 1024, "vocab": 50304, **fields})


def test_even_with_a_remainder() -> None:
    assert even(32, 4) == (8, 8, 8, 8)
    assert even(30, 8) == (4, 4, 4, 4, 4, 4, 3, 3)


@pytest.mark.parametrize(
    ("layers", "layout", "counts"),
    [
        (22, Layout(pp=8, split="ends-one-fewer"), (2, 3, 3, 3, 3, 3, 3, 2)),  # 2401.10241, table 3
        (22, Layout(pp=8, virtual=3, split="ends-one-fewer"), (0, *[1] * 22, 0)),
        (82, Layout(pp=12, split="embedding-as-layer"), (6, *[7] * 10, 6)),  # BLOOM prequel
        (126, Layout(pp=16, split="embedding-and-loss-as-layers"), (7, *[8] * 14, 7)),  # Llama 3.1 405B
        (5, Layout(split="ends-one-fewer"), (5,)),
        (5, Layout(pp=3, split=(0, 4, 1)), (0, 4, 1)),
    ],
)
def test_rules_that_frameworks_use(layers: int, layout: Layout, counts: tuple[int, ...]) -> None:
    assert layers_per_stage(gpt(layers), layout) == counts


def test_nanotron_s_split_of_llama_3_8b() -> None:
    """As printed in its documentation (docs/docs.md, "Pipeline parallelism"): 5, 4, 4, ... with 8 stages."""
    counts, head = by_threshold(nanotron_costs(load_model("llama-3-8b")), 8)
    assert counts[:3] == (5, 4, 4)
    assert (sum(counts), head) == (32, 7)


def test_a_heavy_head_leaves_nanotron_s_last_stage_empty() -> None:
    model = Model.from_fields(
        {"layers": 16, "hidden": 2048, "heads": 32, "ffn": 8192, "vocab": 131072, "tied_embeddings": True}
    )
    stages = split_layers(model, Layout(pp=8, split="cost-threshold"))
    assert [stage.layers for stage in stages] == [3, 2, 3, 2, 3, 2, 1, 0]
    assert [stage.head for stage in stages] == [0, 0, 0, 0, 0, 0, 1, 0]


def test_ends_hold_embedding_and_head() -> None:
    assert split_layers(gpt(5), Layout(pp=2)) == (StageLayers(0, 3, 1.0, 0.0), StageLayers(3, 2, 0.0, 1.0))
    assert split_layers(gpt(5), Layout()) == (StageLayers(0, 5, 1.0, 1.0),)


def test_a_spread_vocabulary_is_everywhere() -> None:
    stages = split_layers(gpt(8), Layout(pp=4, vocabulary="stages"))
    assert {(stage.layers, stage.embedding, stage.head) for stage in stages} == {(2, 0.25, 0.25)}


def test_balancing_flops_takes_layers_from_the_head() -> None:
    model = gpt(32, hidden=3072, heads=24, vocab=262144)
    assert layers_per_stage(model, Layout(pp=8, split="balanced")) == (4, 4, 4, 5, 5, 5, 5, 0)  # as measured times say


@given(st.lists(st.integers(1, 20), min_size=1, max_size=9), st.integers(1, 5))
def test_no_split_has_a_faster_slowest_stage(costs: list[int], stages: int) -> None:
    if stages > len(costs):
        with pytest.raises(BadLayout, match=f"{len(costs)} layers cannot fill {stages} stages"):
            balanced(costs, stages)
        return

    def slowest(ends: tuple[int, ...]) -> int:
        bounds = (0, *ends, len(costs))
        return max(sum(costs[a:b]) for a, b in pairwise(bounds))

    counts = balanced(costs, stages)
    assert (len(counts), sum(counts), min(counts) >= 1) == (stages, len(costs), True)
    ends = tuple(sum(counts[: i + 1]) for i in range(stages - 1))
    assert slowest(ends) == min(slowest(other) for other in combinations(range(1, len(costs)), stages - 1))


def test_given_costs_decide() -> None:
    costs = SplitCosts(layers=(1.0, 1.0, 1.0, 3.0), embedding=1.0, head=0.5)
    assert layers_per_stage(gpt(4), Layout(pp=2, split="balanced"), costs) == (3, 1)
    with pytest.raises(BadLayout, match="3 layer costs for 4 layers; give 4 numbers"):
        layers_per_stage(gpt(4), Layout(pp=2, split="balanced"), SplitCosts((1.0, 1.0, 1.0)))


def test_an_uneven_split_is_said() -> None:
    assert split_note(gpt(30), Layout(pp=8)) == "30 layers on 8 stages are uneven (even): 4, 4, 4, 4, 4, 4, 3, 3"
    assert split_note(gpt(32), Layout(pp=8)) is None
