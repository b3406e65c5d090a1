"""What the orders of small cases look like."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.eager_1f1b import eager_1f1b
from pipesim.schedules.gis import gis, gis_h
from pipesim.schedules.gpipe import gpipe
from pipesim.schedules.interleaved import interleaved
from pipesim.schedules.interleaved_zb import interleaved_zb
from pipesim.schedules.looped_bfs import looped_bfs
from pipesim.schedules.one_f_one_b_v import one_f_one_b_v
from pipesim.schedules.v_auto import v_auto
from pipesim.schedules.v_half import v_half
from pipesim.schedules.v_min import v_min
from pipesim.schedules.zb_auto import zb_auto
from pipesim.schedules.zb_h1 import zb_h1
from pipesim.schedules.zb_h2 import zb_h2
from pipesim.schedules.zb_v import zb_v


def test_gpipe_may_undo_the_newest_microbatch_first() -> None:
    assert str(gpipe(ranks=2, microbatches=3, reverse_backward=True)) == dedent("""\
        F0 F1 F2 B2 B1 B0
        F0 F1 F2 B2 B1 B0""")


def test_eager_1f1b_warms_up_twice_as_far() -> None:
    assert str(eager_1f1b(ranks=3, microbatches=6)) == dedent("""\
        F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5
        F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5
        F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5""")


def test_zb_h1_puts_off_the_weight_gradients_of_r_microbatches() -> None:
    assert str(zb_h1(ranks=3, microbatches=4)) == dedent("""\
        F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
        F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
        F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3""")


def test_zb_h2_fills_the_wait_with_forwards_and_the_drain_with_weight_gradients() -> None:
    assert str(zb_h2(ranks=3, microbatches=6)) == dedent("""\
        F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
        F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
        F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5""")


def test_looped_bfs_passes_all_microbatches_through_a_stage() -> None:
    assert str(looped_bfs(ranks=2, microbatches=3, virtual=2)) == dedent("""\
        0F0 0F1 0F2 2F0 2F1 2F2 2B2 2B1 2B0 0B2 0B1 0B0
        1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0 1B2 1B1 1B0""")


def test_interleaved_with_overlap_begins_backwards_one_forward_later() -> None:
    assert str(interleaved(ranks=2, microbatches=4, virtual=2, overlap=True)) == dedent("""\
        0F0 0F1 2F0 2F1 0F2 0F3 2B0 2F2 2B1 2F3 0B0 0B1 2B2 2B3 0B2 0B3
        1F0 1F1 3F0 3F1 3B0 1F2 3B1 1F3 1B0 3F2 1B1 3F3 3B2 3B3 1B2 1B3""")


def test_interleaved_zb_needs_half_the_warmup() -> None:
    assert str(interleaved_zb(ranks=2, microbatches=4, virtual=2)) == dedent("""\
        0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3
        1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3""")


def test_gis_keeps_a_group_together() -> None:
    assert str(gis(ranks=2, microbatches=4, virtual=2)) == dedent("""\
        0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3
        1F0 1F1 3F0 3I0 3W0 3F1 3I1 3W1 1F2 1I0 1W0 1F3 1I1 1W1 3F2 3I2 3W2 3F3 3I3 3W3 1I2 1W2 1I3 1W3""")


def test_gis_leaves_out_what_a_last_group_lacks() -> None:
    assert str(gis(ranks=2, microbatches=3, virtual=2)) == dedent("""\
        0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0I0 0W0 2F2 0I1 0W1 2I2 2W2 0I2 0W2
        1F0 1F1 3F0 3I0 3W0 3F1 3I1 3W1 1F2 1I0 1W0 1I1 1W1 3F2 3I2 3W2 1I2 1W2""")


def test_gis_h_has_groups_of_half_the_ranks() -> None:
    assert str(gis_h(ranks=4, microbatches=4, virtual=2)) == dedent("""\
        0F0 0F1 4F0 4F1 0F2 0F3 4I0 4W0 4F2 4I1 4W1 4F3 0I0 0W0 0I1 0W1 4I2 4W2 4I3 4W3 0I2 0W2 0I3 0W3
        1F0 1F1 5F0 5F1 1F2 5I0 5W0 1F3 5I1 5W1 5F2 1I0 1W0 5F3 1I1 1W1 5I2 5W2 5I3 5W3 1I2 1W2 1I3 1W3
        2F0 2F1 6F0 6F1 6I0 6W0 2F2 6I1 6W1 2F3 2I0 2W0 6F2 2I1 2W1 6F3 6I2 6W2 6I3 6W3 2I2 2W2 2I3 2W3
        3F0 3F1 7F0 7I0 7W0 7F1 7I1 7W1 3F2 3I0 3W0 3F3 3I1 3W1 7F2 7I2 7W2 7F3 7I3 7W3 3I2 3W2 3I3 3W3""")


def test_zb_v_turns_at_the_last_rank_and_comes_back() -> None:
    assert str(zb_v(ranks=2, microbatches=4)) == dedent("""\
        0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3
        1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3""")


def test_v_half() -> None:
    assert str(v_half(ranks=3, microbatches=4)) == dedent("""\
        0F0 0F1 0F2 5F0 5I0 5W0 5F1 5I1 5W1 0I0 0W0 0F3 5F2 5I2 5W2 0I1 0W1 5F3 5I3 0I2 5W3 0W2 0I3 0W3
        1F0 1F1 4F0 4F1 4I0 4W0 1F2 1I0 4I1 4W1 4F2 1W0 1F3 1I1 4I2 4W2 4F3 1W1 1I2 4I3 4W3 1W2 1I3 1W3
        2F0 3F0 2F1 3F1 3I0 3W0 2I0 2W0 2F2 3F2 3I1 2I1 3W1 2F3 2W1 3F3 3I2 2I2 3W2 2W2 3I3 2I3 3W3 2W3""")


def test_v_min() -> None:
    assert str(v_min(ranks=3, microbatches=4)) == dedent("""\
        0F0 0F1 0F2 5F0 5I0 5W0 5F1 0I0 5I1 5W1 0W0 5F2 0F3 0I1 5I2 5W2 0W1 5F3 5I3 0I2 5W3 0W2 0I3 0W3
        1F0 1F1 4F0 4F1 4I0 4W0 1I0 1F2 1W0 4I1 4F2 4W1 1I1 1F3 1W1 4I2 4F3 4W2 1I2 4I3 4W3 1W2 1I3 1W3
        2F0 3F0 2F1 3F1 3I0 2I0 3W0 2W0 2F2 3F2 3I1 2I1 3W1 2W1 2F3 3F3 3I2 2I2 3W2 2W2 3I3 2I3 3W3 2W3""")


def test_1f1b_v_does_not_split_backwards() -> None:
    assert str(one_f_one_b_v(ranks=3, microbatches=4)) == dedent("""\
        0F0 0F1 0F2 0F3 5F0 5B0 5F1 5B1 5F2 5B2 5F3 0B0 5B3 0B1 0B2 0B3
        1F0 1F1 1F2 4F0 1F3 4F1 4B0 4F2 4B1 1B0 4F3 4B2 1B1 4B3 1B2 1B3
        2F0 3F0 2F1 3F1 2F2 3F2 3B0 2B0 2F3 3F3 3B1 2B1 3B2 2B2 3B3 2B3""")


def test_zb_auto_with_room_for_one_microbatch_does_one_after_the_other() -> None:
    assert str(zb_auto(ranks=3, microbatches=4, memory_limit=1)) == dedent("""\
        F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3
        F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3
        F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3""")


def test_zb_auto_takes_an_infinite_limit_as_none() -> None:
    """It was an OverflowError; v-auto took it."""
    unlimited = zb_auto(ranks=3, microbatches=4, memory_limit=float("inf"))
    assert str(unlimited) == str(zb_auto(ranks=3, microbatches=4, memory_limit=100))


def test_zb_auto_at_equal_times() -> None:
    assert str(zb_auto(ranks=3, microbatches=6)) == dedent("""\
        F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
        F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
        F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5""")


def test_v_auto_with_room_for_one_microbatch_does_one_after_the_other() -> None:
    assert str(v_auto(ranks=2, microbatches=4, memory_limit=1)) == dedent("""\
        0F0 3F0 3I0 3W0 0F1 0I0 0W0 3F1 3I1 3W1 0F2 0I1 0W1 3F2 3I2 3W2 0F3 0I2 0W2 3F3 3I3 3W3 0I3 0W3
        1F0 2F0 2I0 1I0 2W0 1W0 1F1 2F1 2I1 1I1 2W1 1W1 1F2 2F2 2I2 1I2 2W2 1W2 1F3 2F3 2I3 1I3 2W3 1W3""")


def test_gis_refuses_groups_that_lock_up() -> None:
    """With groups of 1 on 4 ranks, rank 3 has to do a forward that waits for its own backward."""
    with pytest.raises(
        Unsuitable, match="gis cannot have groups of 1 on 4 ranks: they need at least 2; try a group of 2"
    ):
        gis(ranks=4, microbatches=2, virtual=3, group=1)


def test_zb_v_has_the_same_order_for_equal_times_and_one_of_its_own_for_others() -> None:
    sizes = {"ranks": 2, "microbatches": 4}
    assert zb_v(**sizes, forward=2.0, input_grad=2.0, weight_grad=2.0, latency=0.0) == zb_v(**sizes)
    assert zb_v(**sizes, forward=2.0, input_grad=3.0, weight_grad=1.0, latency=0.5) != zb_v(**sizes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_limit": 0.5}, "zb-auto cannot have memory_limit 0.5: a rank must hold a microbatch; try 1 or more"),
        ({"memory_limit": float("nan")}, "zb-auto cannot have memory_limit nan: a rank must hold a microbatch"),
        ({"forward": 0.0}, "zb-auto cannot have forward 0.0: each is a time; try more than 0 seconds"),
        ({"weight_grad": -1.0}, "zb-auto cannot have weight_grad -1.0: each is a time; try 0 or more seconds"),
        ({"latency": float("inf")}, "zb-auto cannot have latency inf: it is a time; try 0 or more seconds"),
        ({"forward": [1.0, 2.0]}, "zb-auto cannot have 2 values of forward: it has 3 stages; try 3 values"),
        ({"input_release": 2.0}, "zb-auto cannot have input_release 2.0"),
        ({"forward": "18ms"}, "zb-auto cannot have forward 18ms: each is a time; try more than 0 seconds"),
        ({"memory_limit": "all"}, "zb-auto cannot have memory_limit all: a rank must hold a microbatch"),
        ({"objective": "length"}, "zb-auto cannot have objective 'length': what is to be short; try makespan or span"),
    ],
)
def test_times_and_limits_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsuitable) as caught:
        zb_auto(ranks=3, microbatches=4, **options)
    assert str(caught.value).startswith(message)
