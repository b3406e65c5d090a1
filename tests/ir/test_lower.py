"""Lowering: its picture, the order of channels, what the tail waits for, and that nothing can lock up."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from pipesim.ir.action import Action, Kind
from pipesim.ir.check import BrokenSchedule, check_program
from pipesim.ir.lanes import lanes
from pipesim.ir.lower import lower
from pipesim.ir.order import Deadlock, progress
from pipesim.ir.placement import bidirectional, linear, looped, vee, wave
from pipesim.ir.program import COMM_POLICIES, Comm, Program
from pipesim.ir.schedule import Schedule
from pipesim.schedules.one_f_one_b import one_f_one_b


def picture(program: Program) -> str:
    return "\n".join(" ".join(program.text(op) for op in program.row(rank)) for rank in range(program.ranks))


def test_its_picture() -> None:
    program = lower(one_f_one_b(ranks=2, microbatches=2), reduce=True)
    assert picture(program) == dedent("""\
        0F0 0SEND_F0 0F1 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1 0REDUCE_GRAD STEP
        1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1SEND_B1 1REDUCE_GRAD STEP""")


def test_what_an_action_needs() -> None:
    schedule = one_f_one_b(ranks=2, microbatches=2)
    assert schedule.needs(Action(Kind.F, 0, 1)) == ()
    assert schedule.needs(Action(Kind.F, 1, 1)) == (Action(Kind.F, 0, 1),)
    assert schedule.needs(Action(Kind.B, 0, 1)) == (Action(Kind.B, 1, 1), Action(Kind.F, 0, 1))
    with pytest.raises(KeyError):
        schedule.needs(Action(Kind.W, 0, 0))


def test_slices_wait_for_each_other() -> None:
    """Keys and values pass forward, their gradients backward; a token waits for the one before to leave the end."""
    causal = Schedule.of_texts("s", linear(1), 1, [["0F0", "0F0.1", "0B0.1", "0B0"]], slices=2)
    assert causal.needs(Action(Kind.F, 0, 0, 1)) == (Action(Kind.F, 0, 0),)
    assert causal.needs(Action(Kind.B, 0, 0, 0)) == (Action(Kind.F, 0, 0), Action(Kind.B, 0, 0, 1))
    rows = [["0F0", "0F0.1"], ["1F0", "1F0.1"]]
    tokens = Schedule.of_texts("t", linear(2), 1, rows, slices=2, slicing="autoregressive")
    assert tokens.needs(Action(Kind.F, 0, 0, 1)) == (Action(Kind.F, 1, 0, 0),)
    assert picture(lower(tokens)).splitlines()[0] == "0F0 0RECV_T0.1 0SEND_F0 0F0.1 0SEND_F0.1"


def test_receives_follow_the_order_of_production() -> None:
    """Rank 1 uses microbatch 1 before 0, but rank 0 makes 0 first: both receives stand before the first use."""
    schedule = Schedule.of_texts("late", linear(2), 2, [["0F0", "0F1"], ["1F1", "1F0"]])
    assert picture(lower(schedule)).splitlines()[1] == "1RECV_F0 1RECV_F1 1F1 1F0"
    check_program(lower(schedule))


def test_neighbours_on_one_rank_send_nothing() -> None:
    schedule = Schedule.of_texts("v", vee(2), 1, [["0F0", "3F0", "3B0", "0B0"], ["1F0", "2F0", "2B0", "1B0"]])
    assert picture(lower(schedule)).count("SEND") == 4  # stages 1 and 2 share rank 1


def test_replicas_are_reduced_when_both_are_done() -> None:
    rows = [["0F0", "3F1", "3B1", "0B0"], ["2F1", "1F0", "1B0", "2B1"]]
    program = lower(Schedule.of_texts("both ways", bidirectional(2), 2, rows))
    reduce = next(op for op in range(len(program)) if program.text(op) == "0REDUCE_GRAD")
    assert sorted(program.text(int(need)) for need in program.needs_of(reduce)) == ["0B0", "2B1"]


def test_asynchronous_schedules_step_after_each_update() -> None:
    schedule = Schedule.of_texts(
        "a", linear(1), 4, [[f"0{kind}{m}" for m in range(4) for kind in "FB"]], update_every=2
    )
    assert picture(lower(schedule)) == "0F0 0B0 0F1 0B1 STEP 0F2 0B2 0F3 0B3 STEP"


def test_loads_wait_for_their_place_and_backwards_for_their_load() -> None:
    schedule = Schedule.of_texts("off", linear(1), 2, [["0F0", "0X0", "0F1", "0L0", "0B1", "0B0"]], refuge=(None,))
    program = lower(schedule)
    needs = {program.text(op): {program.text(int(n)) for n in program.needs_of(op)} for op in range(len(program))}
    assert needs["0X0"] == {"0F0"}
    assert needs["0L0"] == {"0X0", "0F1"}
    assert needs["0B0"] == {"0L0"}


@pytest.mark.parametrize("comm", COMM_POLICIES)
def test_crossing_blocking_transfers_find_an_order(comm: Comm) -> None:
    """Just-in-time receives of these orders lock up in shared lanes: each rank would send before it receives."""
    rows = [
        ["0F0", "0F1", "3F0", "3F1", "3B1", "3B0", "0B1", "0B0"],
        ["1F0", "1F1", "2F0", "2F1", "2B1", "2B0", "1B1", "1B0"],
    ]
    program = lower(Schedule.of_texts("crossing", looped(2, 2), 2, _looped(rows)), comm=comm)
    assert progress(lanes(program), program).stuck == []


def _looped(rows: list[list[str]]) -> list[list[str]]:
    """The same orders with stages numbered for a loop instead of a V."""
    return [[{"2": "3", "3": "2"}.get(text[0], text[0]) + text[1:] for text in row] for row in rows]


def test_a_channel_whose_ends_disagree_is_found() -> None:
    program = lower(Schedule.of_texts("swap", linear(2), 2, [["0F0", "0F1"], ["1F0", "1F1"]]))
    sends = [op for op in range(len(program)) if program.text(op).startswith("0SEND")]
    match = program.match.copy()
    first, second = sends
    match[[first, second]] = match[[second, first]]
    match[match[first]], match[match[second]] = first, second
    broken = Program(program.schedule, program.ops, program.offsets, program.flow, program.peer, match, program.need,
                     program.need_offsets)  # fmt: skip
    with pytest.raises(BrokenSchedule, match="rank 0 sends 0SEND_F0 before 0SEND_F1, but rank 1 receives"):
        check_program(broken)


def test_orders_that_need_each_other_are_a_deadlock() -> None:
    rows = [["0F0", "0B1", "0F1", "0B0"], ["1F0", "1F1", "1B1", "1B0"]]
    with pytest.raises(Deadlock, match="rank 0 cannot start"):
        lower(Schedule.of_texts("stuck", linear(2), 2, rows), comm="blocking")


def test_placements() -> None:
    assert vee(3).ranks_of_stages == (0, 1, 2, 2, 1, 0)
    assert wave(2, 4).ranks_of_stages == (0, 1, 1, 0, 0, 1, 1, 0)
    assert looped(2, 2).stages_of(1) == (1, 3)
    both = bidirectional(2)
    assert (both.length, both.share, both.replicas_of(3)) == (2, 1.0, (1, 3))
    assert [one.kind() for one in (linear(3), vee(3), wave(2, 4), looped(2, 2), both)] == [
        "linear", "vee", "wave", "looped", "bidirectional",
    ]  # fmt: skip
    assert np.all([linear(4).is_first(0), linear(4).is_last(3), both.is_first(2), both.is_last(1)])


def test_a_replica_that_no_microbatch_passes_still_takes_the_gradients() -> None:
    """Chimera with one microbatch leaves a direction unused; without its reduction its weights would fall behind."""
    rows = [["0F0", "0B0"], ["1F0", "1B0"]]
    program = lower(Schedule.of_texts("one way", bidirectional(2), 1, rows))
    assert picture(program).splitlines()[1] == "1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 2REDUCE_GRAD STEP"
    needs = {program.text(op): {program.text(int(n)) for n in program.needs_of(op)} for op in range(len(program))}
    assert needs["2REDUCE_GRAD"] == {"0B0"}
    assert needs["STEP"] >= {"1REDUCE_GRAD", "2REDUCE_GRAD"}
