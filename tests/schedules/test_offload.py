"""Activation offload as an option of any schedule."""

from __future__ import annotations

from textwrap import dedent

import pytest

from pipesim.ir.memory import peak_activations
from pipesim.ir.schedule import Schedule
from pipesim.schedules.bpipe import bpipe
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.gpipe import gpipe
from pipesim.schedules.inference import forward_only
from pipesim.schedules.lookup import build
from pipesim.schedules.offload import with_offload
from pipesim.schedules.one_f_one_b import one_f_one_b


def test_offload_in_a_picture() -> None:
    """Out after each forward, and back one action ahead of the backward."""
    assert str(with_offload(gpipe(ranks=2, microbatches=4))) == dedent("""\
        F0 X0 F1 X1 F2 X2 L0 F3 X3 L1 B0 L2 B1 L3 B2 B3
        F0 X0 F1 X1 F2 X2 L0 F3 X3 L1 B0 L2 B1 L3 B2 B3""")


def test_half_of_1f1b_evenly_over_time() -> None:
    moved = with_offload(one_f_one_b(ranks=4, microbatches=8), share=0.5)
    assert str(moved).splitlines()[0] == ("F0 F1 X1 F2 F3 X3 B0 L1 F4 B1 F5 X5 B2 L3 F6 B3 F7 X7 L5 B4 B5 L7 B6 B7")


def test_the_last_rank_of_1f1b_has_nothing_to_gain() -> None:
    moved = with_offload(one_f_one_b(ranks=4, microbatches=8))
    assert moved.row(3).texts() == one_f_one_b(ranks=4, microbatches=8).row(3).texts()


@pytest.mark.parametrize("name", ["gpipe", "chimera", "dualpipe", "hanayo", "seq1f1b", "pipedream"])
def test_memory_falls_where_activations_wait_long(name: str) -> None:
    plain = build(name, ranks=4, microbatches=16)
    assert peak_activations(with_offload(plain)).max() < peak_activations(plain).max()


def test_nothing_to_move_leaves_the_schedule_alone() -> None:
    plain = one_f_one_b(ranks=1, microbatches=4)
    assert with_offload(plain) is plain
    assert with_offload(gpipe(ranks=2, microbatches=4), share=0.0).name == "gpipe"


@pytest.mark.parametrize(
    ("schedule", "options", "message"),
    [
        (gpipe(ranks=2, microbatches=4), {"share": 1.5}, "share 1.5: it is a part of the activations"),
        (gpipe(ranks=2, microbatches=4), {"share": float("nan")}, "share nan: it is a part of the activations"),
        (gpipe(ranks=2, microbatches=4), {"ahead": 0}, "ahead 0: it needs at least 1"),
        (forward_only(ranks=2, microbatches=4), {}, "forward-only: it keeps no activations"),
        (bpipe(ranks=6, microbatches=12), {}, "bpipe: it moves activations already"),
    ],
)
def test_what_cannot_be_offloaded(schedule: Schedule, options: dict[str, float], message: str) -> None:
    with pytest.raises(Unsuitable, match=message):
        with_offload(schedule, **options)  # type: ignore[arg-type]
