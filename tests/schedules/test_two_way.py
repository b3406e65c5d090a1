"""Chimera, GEMS, DualPipe and Hanayo: their pictures, their rules, their closed forms."""

from __future__ import annotations

from textwrap import dedent

import pytest

from pipesim.ir.placement import bidirectional, wave
from pipesim.schedules.chimera import chimera
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.dualpipe import dualpipe, dualpipe_v
from pipesim.schedules.gems import gems
from pipesim.schedules.hanayo import hanayo


def test_chimera_in_a_picture() -> None:
    """Figure 3 of arXiv 2107.06925; stages 4 … 7 are the replica that runs up."""
    assert str(chimera(ranks=4, microbatches=4)) == dedent("""\
        0F0 0F2 7F1 7B1 7F3 7B3 0B0 0B2
        1F0 6F1 1F2 6F3 6B1 1B0 6B3 1B2
        5F1 2F0 5F3 2F2 2B0 5B1 2B2 5B3
        4F1 4F3 3F0 3B0 3F2 3B2 4B1 4B3""")


def test_chimera_of_four_replicas_fills_every_slot() -> None:
    assert str(chimera(ranks=4, microbatches=4, pipes=4)) == dedent("""\
        0F0 13F3 6F1 11F2 11B2 6B1 13B3 0B0
        12F3 1F0 10F2 7F1 7B1 10B2 1B0 12B3
        4F1 9F2 2F0 15F3 15B3 2B0 9B2 4B1
        8F2 5F1 14F3 3F0 3B0 14B3 5B1 8B2""")


def test_gems_in_a_picture() -> None:
    assert str(gems(ranks=3, microbatches=3)) == dedent("""\
        0F0 0B0 5F1 5B1 0F2 0B2
        1F0 1B0 4F1 4B1 1F2 1B2
        2F0 2B0 3F1 3B1 2F2 2B2""")
    assert gems(ranks=3, microbatches=3).placement == bidirectional(3)


def test_hanayo_in_a_picture() -> None:
    assert str(hanayo(ranks=2, microbatches=2)) == dedent("""\
        0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1
        1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1""")
    assert hanayo(ranks=2, microbatches=2, virtual=4).placement == wave(2, 4)


def test_dualpipe_in_a_picture() -> None:
    assert str(dualpipe(ranks=2, microbatches=4)) == dedent("""\
        0F0 3F2 0F1 3B2 3F3&0B0 3B3 0I1 0W1
        2F2 1F0 2F3 1B0 1F1&2B2 1B1 2I3 2W3""")


def test_dualpipe_v_in_a_picture() -> None:
    assert str(dualpipe_v(ranks=2, microbatches=4)) == dedent("""\
        0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3&3B1 3F2&0B0 3B2 3F3&0B1 3B3 0I2 0W2 0I3 0W3
        1F0 2F0 1F1 2F1 1F2 2B0 2F2&1B0 1F3&2B1 2F3&1B1 2B2 1B2 2I3 1I3 2W3 1W3""")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: chimera(ranks=5, microbatches=4),
            "chimera cannot have 5 ranks: two directions need an even number; try 4 or 6 ranks",
        ),
        (
            lambda: chimera(ranks=1, microbatches=4),
            "chimera cannot have 1 ranks: two directions need an even number; try 2 ranks",
        ),
        (
            lambda: chimera(ranks=12, microbatches=4, pipes=8),
            "chimera cannot have 8 pipes on 12 ranks: half of the pipes must divide half of the ranks; "
            "try 6 or 4 or 12",
        ),
        (
            lambda: hanayo(ranks=4, microbatches=4, virtual=3),
            "hanayo cannot have 3 stages a rank: a wave goes down and up; try 2 or 4",
        ),
        (
            lambda: hanayo(ranks=4, microbatches=4, virtual=1),
            "hanayo cannot have 1 stages a rank: a wave goes down and up; try 2",
        ),
        (
            lambda: dualpipe(ranks=4, microbatches=6),
            "dualpipe cannot have 6 microbatches on 4 ranks: m must be even and at least 2p, or the "
            "directions do not overlap; try 8 microbatches",
        ),
        (
            lambda: dualpipe(ranks=4, microbatches=9),
            "dualpipe cannot have 9 microbatches on 4 ranks: m must be even and at least 2p, or the "
            "directions do not overlap; try 8 or 10 microbatches",
        ),
        (
            lambda: dualpipe_v(ranks=4, microbatches=7),
            "dualpipe-v cannot have 7 microbatches on 4 ranks: m must be at least 2p, or the directions do "
            "not overlap; try 8 microbatches",
        ),
        (
            lambda: gems(ranks=4, microbatches=0),
            "gems cannot have microbatches 0: it needs at least 1; try microbatches 1 or more",
        ),
    ],
)
def test_numbers_that_break_a_rule_name_the_nearest_that_work(make: object, message: str) -> None:
    with pytest.raises(Unsuitable) as caught:
        make()  # type: ignore[operator]
    assert str(caught.value) == message
