"""Which ranks form each group."""

import numpy as np
import pytest

from pipesim.costs.layouts.groups import expert_groups, pipeline, rank_groups
from pipesim.costs.layouts.layout import Layout


def test_groups_of_megatron_s_own_example() -> None:
    """16 GPUs, tp 2, pp 4, dp 2: the docstring of initialize_model_parallel in Megatron-LM's parallel_state.py."""
    layout = Layout(tp=2, pp=4, dp=2, global_batch=2)
    assert rank_groups(layout, "tp").tolist() == [[2 * i, 2 * i + 1] for i in range(8)]
    assert rank_groups(layout, "dp").tolist() == [
        [0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15],
    ]  # fmt: skip
    assert rank_groups(layout, "pp").tolist() == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert pipeline(layout, replica=1) == (1, 5, 9, 13)


def test_another_order_puts_the_pipeline_inside() -> None:
    layout = Layout(tp=2, pp=2, dp=2, global_batch=2, rank_order="tp-pp-cp-ep-dp")
    assert rank_groups(layout, "pp").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert rank_groups(layout, "dp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_every_rank_is_in_one_group_of_each_axis() -> None:
    layout = Layout(tp=2, pp=3, dp=4, cp=2, ep=4, global_batch=4)
    for groups in (
        *(rank_groups(layout, axis) for axis in ("tp", "cp", "dp", "pp")),
        rank_groups(layout, "dp", "cp"),
        *(expert_groups(layout, axis) for axis in ("tp", "ep", "dp", "pp")),
    ):
        assert sorted(groups.ravel()) == list(range(layout.gpus))
        assert (np.diff(groups, axis=1) > 0).all()


def test_ranks_that_reduce_a_gradient_differ_in_data_and_context() -> None:
    layout = Layout(tp=2, cp=2, dp=2, global_batch=2)
    assert rank_groups(layout, "dp", "cp").tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_expert_replicas() -> None:
    layout = Layout(tp=2, dp=4, ep=2, global_batch=4)
    assert expert_groups(layout, "ep").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert expert_groups(layout, "dp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_an_axis_that_is_none() -> None:
    with pytest.raises(ValueError, match="axis 'xp' is none of tp, cp, dp, pp"):
        rank_groups(Layout(), "xp")
