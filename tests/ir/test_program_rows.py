"""Someone else's transfers: what is wrong with them is found and named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipesim.costs.plain import plain_costs
from pipesim.engine.event import simulate
from pipesim.ir.check import BrokenSchedule, check_program
from pipesim.ir.formats import torch_csv
from pipesim.ir.lower import lower, lower_in_one_order
from pipesim.ir.order import Deadlock
from pipesim.ir.program import COMM_POLICIES, Program
from pipesim.schedules.lookup import build

_ROWS = [
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1",
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1",
]


def _load(*rows: str) -> Program:
    program = torch_csv.loads_program("\n".join(rows), "a.csv")
    assert program is not None
    return program


def _swapped(row: str, one: str, other: str) -> str:
    cells = row.split(",")
    i, j = cells.index(one), cells.index(other)
    cells[i], cells[j] = cells[j], cells[i]
    return ",".join(cells)


def test_good_rows_pass_in_all_lanes() -> None:
    earlier = _swapped(_swapped(_ROWS[1], "1SEND_B0", "1RECV_F1"), "1B0", "1RECV_F1")
    assert earlier.startswith("1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0")
    for comm in COMM_POLICIES:
        program = torch_csv.loads_program(f"{_ROWS[0]}\n{earlier}", "a.csv", comm=comm)
        assert program is not None
        check_program(program)


def test_two_sides_of_a_channel_that_disagree() -> None:
    rows = (_ROWS[0], "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1")
    with pytest.raises(BrokenSchedule) as caught:
        check_program(_load(*rows))
    assert caught.value.faults == ("rank 0 sends 0SEND_F0 before 0SEND_F1, but rank 1 receives 1RECV_F1 first",)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (
            (_ROWS[0].replace("0SEND_F1,", ""), _ROWS[1]),
            "rank 0 does not send the result of 0F1, which 1F1 on rank 1 needs",
        ),
        ((_ROWS[0], _ROWS[1].replace("1RECV_F1,", "")), "rank 1 does not receive the result of 0F1, which 1F1 needs"),
        ((_swapped(_ROWS[0], "0F0", "0SEND_F0"), _ROWS[1]), "0SEND_F0 stands before 0F0, whose result it sends"),
        ((_ROWS[0], _swapped(_ROWS[1], "1RECV_F1", "1F1")), "1RECV_F1 stands after 1F1, which needs it"),
        ((_ROWS[0] + ",0SEND_F0", _ROWS[1]), "0SEND_F0 stands twice on rank 0"),
        ((_ROWS[0] + ",0SEND_B0", _ROWS[1]), "0SEND_B0 on rank 0 carries what nobody needs there"),
        (
            (_ROWS[0] + ",1SEND_B1", _ROWS[1].replace(",1SEND_B1", "")),
            "1SEND_B1 on rank 0 carries what nobody needs there",
        ),
    ],
)
def test_transfers_that_do_not_fit_the_actions(rows: tuple[str, str], fault: str) -> None:
    with pytest.raises(BrokenSchedule) as caught:
        _load(*rows)
    assert fault in caught.value.faults


def test_sends_that_meet_head_on_deadlock_where_they_share_a_lane() -> None:
    """Rank 0 sends the forward of 1 while rank 1 sends the gradient of 0: neither receive is ever reached."""
    check_program(_load(*_ROWS))
    program = torch_csv.loads_program("\n".join(_ROWS), "a.csv", comm="pair")
    assert program is not None
    with pytest.raises(Deadlock) as caught:
        check_program(program)
    assert "0SEND_F1" in str(caught.value)
    assert "1SEND_B0" in str(caught.value)


@pytest.mark.parametrize("lowered", [lower, lower_in_one_order])
def test_a_lowered_program_comes_back_as_it_was(lowered: Callable[..., Program]) -> None:
    schedule = build("interleaved", ranks=4, microbatches=8, virtual=2)
    program = lowered(schedule, reduce=True)
    read = torch_csv.loads_program(torch_csv.dumps_program(program), comm=program.comm)
    assert read is not None
    words = [[program.text(op) for op in program.row(rank)] for rank in range(4)]
    assert [[read.text(op) for op in read.row(rank)] for rank in range(4)] == words
    costs = plain_costs({"F": 1.0, "B": 2.0, "C": 0.3})
    makespans = {simulate(each, costs.of(schedule)).makespan_s for each in (program, read)}
    assert len(makespans) == 1


@pytest.mark.parametrize("name", ["1f1b", "chimera", "dualpipe-v", "hanayo", "seq1f1b", "decode"])
@pytest.mark.parametrize("comm", COMM_POLICIES)
def test_one_global_order_of_transfers_never_deadlocks(name: str, comm: str) -> None:
    program = lower_in_one_order(build(name, ranks=4, microbatches=8))
    check_program(
        Program(
            program.schedule,
            program.ops,
            program.offsets,
            program.flow,
            program.peer,
            program.match,
            program.need,
            program.need_offsets,
            comm,  # type: ignore[arg-type]  # one of the policies
        )
    )
