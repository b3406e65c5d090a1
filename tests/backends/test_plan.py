"""A rank's tasks read off a program: what is posted when, and which sends are known to be over."""

from __future__ import annotations

import pytest

from pipesim.backends.execute.plan import AHEAD, CannotRun, Compute, Plan, Transfers, Update, make_plan
from pipesim.backends.execute.settled import settled_sends
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build


def words(plan: Plan) -> list[str]:
    """Tasks in short: actions, `>` sends, `<` receives, `(…)` sends that are let go."""
    found = []
    for task in plan.tasks:
        if isinstance(task, Compute):
            acts = "&".join(plan.program.text(act.op) for act in task.acts)
            gone = ",".join(message.text for message in task.settled)
            found.append(acts + (f" ({gone})" if gone else ""))
        elif isinstance(task, Transfers):
            found += [f"< {message.text}" for message in task.receives]
            found += [f"> {message.text}" for message in task.sends]
        else:
            assert isinstance(task, Update)
            found.append(plan.program.text(task.op))
    return found


def test_receives_are_two_ahead_and_sends_follow_their_action() -> None:
    """Forward 2 can only have come after rank 0 had used the gradient of microbatch 0."""
    program = lower(build("1f1b", ranks=2, microbatches=4))
    assert AHEAD == 2
    assert words(make_plan(program, 1)) == [
        "< 1RECV_F0", "< 1RECV_F1",
        "1F0", "< 1RECV_F2", "1B0", "> 1SEND_B0",
        "1F1", "< 1RECV_F3", "1B1", "> 1SEND_B1",
        "1F2 (1SEND_B0)", "1B2", "> 1SEND_B2",
        "1F3 (1SEND_B1)", "1B3", "> 1SEND_B3",
        "STEP",
    ]  # fmt: skip


def test_a_send_is_let_go_when_its_gradient_has_come_back() -> None:
    program = lower(build("1f1b", ranks=2, microbatches=4))
    assert words(make_plan(program, 0)) == [
        "< 0RECV_B0", "< 0RECV_B1",
        "0F0", "> 0SEND_F0", "0F1", "> 0SEND_F1",
        "0B0 (0SEND_F0)", "< 0RECV_B2", "0F2", "> 0SEND_F2",
        "0B1 (0SEND_F1)", "< 0RECV_B3", "0F3", "> 0SEND_F3",
        "0B2 (0SEND_F2)", "0B3 (0SEND_F3)",
        "STEP",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe", "interleaved"])
def test_sends_under_way_do_not_grow_with_microbatches(name: str) -> None:
    most = []
    for microbatches in (16, 64):
        program = lower(build(name, ranks=4, microbatches=microbatches))
        for rank in range(4):
            settled = {send: op for op, sends in settled_sends(program, rank).items() for send in sends}
            under_way = peak = 0
            for op in program.row(rank):
                under_way -= sum(at == op for at in settled.values())
                under_way += int(program.text(op).find("SEND") > 0)
                peak = max(peak, under_way)
            most.append(peak)
    assert most[:4] == most[4:]
    assert max(most) <= 16


def test_moves_are_only_simulated() -> None:
    with pytest.raises(CannotRun, match=r"moving activations \(X and L\) can only be simulated"):
        make_plan(lower(build("bpipe", ranks=4, microbatches=4)), 0)


def test_blocking_transfers_stand_where_the_program_has_them() -> None:
    program = lower(build("1f1b", ranks=2, microbatches=2), comm="blocking")
    plan = make_plan(program, 1)
    assert words(plan) == ["< 1RECV_F0", "1F0", "1B0", "< 1RECV_F1", "> 1SEND_B0", "1F1", "1B1", "> 1SEND_B1", "STEP"]
    assert all(task.wait for task in plan.tasks if isinstance(task, Transfers))
    strict = make_plan(program, 1, strict=True)
    assert [len(task.receives) + len(task.sends) for task in strict.tasks if isinstance(task, Transfers)] == [
        1,
        1,
        1,
        1,
    ]
