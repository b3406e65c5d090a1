"""Slices, activation moves, asynchronous steps, inference: their pictures and rules."""

from __future__ import annotations

from textwrap import dedent

import pytest

from pipesim.ir.memory import peak_activations
from pipesim.schedules.bpipe import activation_bound, bpipe
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.inference import decode, forward_only
from pipesim.schedules.one_f_one_b import one_f_one_b
from pipesim.schedules.pipedream import pipedream, pipedream_2bw
from pipesim.schedules.slices import seq1f1b, terapipe


def test_terapipe_in_a_picture() -> None:
    assert str(terapipe(ranks=2, microbatches=2, slices=2)) == dedent("""\
        F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1
        F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1""")


def test_seq1f1b_in_a_picture() -> None:
    assert str(seq1f1b(ranks=2, microbatches=2, slices=2)) == dedent("""\
        F0 F0.1 F1 B0.1 F1.1 B0 B1.1 B1
        F0 F0.1 B0.1 F1 B0 F1.1 B1.1 B1""")


def test_one_slice_is_the_plain_schedule() -> None:
    assert seq1f1b(ranks=4, microbatches=6, slices=1).orders == one_f_one_b(ranks=4, microbatches=6).orders


def test_bpipe_in_a_picture() -> None:
    """What rank 0 needs last goes to rank 5 and comes back one action before its backward."""
    made = bpipe(ranks=6, microbatches=6)
    assert str(made) == dedent("""\
        F0 F1 F2 F3 X3 F4 X4 F5 B0 B1 L3 B2 L4 B3 B4 B5
        F0 F1 F2 F3 X3 F4 B0 F5 B1 L3 B2 B3 B4 B5
        F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5
        F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5
        F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5
        F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5""")
    assert made.refuge == (5, 4, None, None, None, None)


@pytest.mark.parametrize("ranks", range(1, 13))
def test_bpipe_keeps_every_rank_within_its_bound(ranks: int) -> None:
    most = activation_bound(ranks)
    expected = [min(ranks - rank, most) for rank in range(ranks)]
    assert peak_activations(bpipe(ranks=ranks, microbatches=3 * ranks)).tolist() == expected


def test_pipedream_is_1f1b_with_a_step_after_every_backward() -> None:
    made = pipedream(ranks=4, microbatches=6)
    assert made.orders == one_f_one_b(ranks=4, microbatches=6).orders
    assert (made.update_every, pipedream_2bw(ranks=4, microbatches=8).update_every) == (1, 4)


def test_2bw_refuses_what_would_need_a_third_version_or_lose_gradients() -> None:
    with pytest.raises(Unsuitable) as caught:
        pipedream_2bw(ranks=4, microbatches=8, update_every=2)
    assert str(caught.value) == (
        "pipedream-2bw cannot have a step every 2 microbatches on 4 ranks: with fewer microbatches a step "
        "than ranks, more than two weight versions are in flight; try update_every 4 or more"
    )
    with pytest.raises(Unsuitable, match="try 8 or 12 microbatches"):
        pipedream_2bw(ranks=4, microbatches=9)


def test_forward_only_in_a_picture() -> None:
    assert str(forward_only(ranks=2, microbatches=3)) == "F0 F1 F2\nF0 F1 F2"


def test_decode_gives_every_group_its_turn_before_the_next_token() -> None:
    made = decode(ranks=2, microbatches=3, slices=2)
    assert str(made) == "F0 F1 F2 F0.1 F1.1 F2.1\nF0 F1 F2 F0.1 F1.1 F2.1"
    assert made.slicing == "autoregressive"
