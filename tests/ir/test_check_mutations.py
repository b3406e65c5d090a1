"""The checker against broken schedules: each is refused with a message that names the fault, or can be run.

Valid schedules of all shapes are changed in one place: an action dropped, doubled, put elsewhere or on another
rank, made another action, fused, or two of them swapped; and in their programs a send or receive likewise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from pipesim.costs.plain import plain_costs
from pipesim.engine.event import simulate
from pipesim.ir.action import Action, Kind
from pipesim.ir.atoms import Atoms, Ints, concatenate
from pipesim.ir.check import BrokenSchedule, check, check_program
from pipesim.ir.lower import lower
from pipesim.ir.order import Deadlock
from pipesim.ir.program import COMM_POLICIES, Program
from pipesim.ir.program_rows import program_from_rows
from pipesim.ir.schedule import Schedule
from pipesim.schedules.lookup import build
from pipesim.schedules.offload import with_offload

_SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "gpipe": lambda: build("gpipe", ranks=2, microbatches=3),
    "1f1b": lambda: build("1f1b", ranks=3, microbatches=4),
    "interleaved": lambda: build("interleaved", ranks=2, microbatches=4, virtual=2),
    "zb-h1": lambda: build("zb-h1", ranks=3, microbatches=4),
    "zb-v": lambda: build("zb-v", ranks=2, microbatches=4),
    "gis": lambda: build("gis", ranks=3, microbatches=3),
    "chimera": lambda: build("chimera", ranks=4, microbatches=4),
    "dualpipe": lambda: build("dualpipe", ranks=2, microbatches=4),
    "seq1f1b": lambda: build("seq1f1b", ranks=2, microbatches=3, slices=2),
    "bpipe": lambda: build("bpipe", ranks=4, microbatches=5),
    "offload": lambda: with_offload(build("1f1b", ranks=2, microbatches=3), share=0.5),
    "pipedream": lambda: build("pipedream", ranks=2, microbatches=4),
    "decode": lambda: build("decode", ranks=2, microbatches=2, slices=3),
}
_OF_EACH = 60


@dataclass(frozen=True)
class _Mutant:
    """A changed schedule, how it was changed, and the text of an action that was."""

    what: str
    changed: str
    schedule: Schedule


_Rows = list[list[tuple[int, int, int, int, bool]]]  # kind, stage, microbatch, slice, fused


def _rows(schedule: Schedule) -> _Rows:
    return [
        list(zip(*(getattr(row, column).tolist() for column in ("kind", "stage", "microbatch", "slice", "fused")),
                 strict=True))
        for row in schedule.rows()
    ]  # fmt: skip


def _schedule(old: Schedule, rows: _Rows) -> Schedule:
    columns = [list(zip(*row, strict=True)) or [()] * 5 for row in rows]
    atoms = [Atoms.of(*(np.array(column, np.int64) for column in row[:4]), np.array(row[4], bool)) for row in columns]
    return replace(old, atoms=concatenate(atoms), offsets=np.cumsum([0, *map(len, atoms)]))


def _mutants(name: str) -> Iterator[_Mutant]:
    """Every kind of change in turn, at places drawn by a fixed seed."""
    chance, old = random.Random(name), _SCHEDULES[name]()
    changes = (_drop, _double, _displace, _swap, _swap_neighbours, _emigrate, _become, _fuse)
    for turn in range(_OF_EACH * 2):
        rows = _rows(old)
        rank = chance.randrange(len(rows))
        what = changes[turn % len(changes)]
        at = chance.randrange(len(rows[rank]))
        kind, stage, microbatch, slice_, _ = rows[rank][at]
        what(rows, rank, at, chance, old)
        yield _Mutant(what.__name__[1:], str(Action(Kind(kind), stage, microbatch, slice_)), _schedule(old, rows))


def _drop(rows: _Rows, rank: int, at: int, chance: random.Random, old: Schedule) -> None:
    del rows[rank][at]


def _double(rows: _Rows, rank: int, at: int, chance: random.Random, old: Schedule) -> None:
    rows[rank].insert(chance.randrange(len(rows[rank]) + 1), (*rows[rank][at][:4], False))


def _displace(rows: _Rows, rank: int, at: int, chance: random.Random, old: Schedule) -> None:
    rows[rank].insert(chance.randrange(len(rows[rank])), rows[rank].pop(at))


def _swap(rows: _Rows, rank: int, at: int, chance: random.Random, old: Schedule) -> None:
    other = chance.randrange(len(rows[rank]))
    rows[rank][at], rows[rank][other] = rows[rank][other], rows[rank][at]


def _swap_neighbours(rows: _Rows, rank: int, at: int, chance: random.Random, old: Schedule) -> None:
    other = max(at - 1, 0)
    rows[rank][at], rows[rank][other] = rows[rank][other], rows[rank][at]


def _emigrate(rows: _Rows, rank: int, at: int, chance: random.Random, old: Schedule) -> None:
    there = (rank + 1) % len(rows)
    rows[there].insert(chance.randrange(len(rows[there]) + 1), rows[rank].pop(at))


def _become(rows: _Rows, rank: int, at: int, chance: random.Random, old: Schedule) -> None:
    kind, stage, microbatch, slice_, fused = rows[rank][at]
    rows[rank][at] = chance.choice([
        (chance.randrange(6), stage, microbatch, slice_, fused),
        (kind, stage + chance.choice([-1, 1]), microbatch, slice_, fused),
        (kind, stage, microbatch + chance.choice([-1, 1, 100]), slice_, fused),
        (kind, stage, microbatch, slice_ + 1, fused),
    ])  # fmt: skip


def _fuse(rows: _Rows, rank: int, at: int, chance: random.Random, old: Schedule) -> None:
    rows[rank][at] = (*rows[rank][at][:4], not rows[rank][at][4])


def _refusal(mutant: _Mutant) -> str | None:
    try:
        check(mutant.schedule)
    except (BrokenSchedule, Deadlock) as fault:
        return str(fault)
    return None


def _runs(schedule: Schedule) -> bool:
    """Simulated in every kind of lane, every action once."""
    costs = plain_costs({"F": 1.0, "I": 1.0, "W": 0.5, "C": 0.25}).of(schedule)
    for comm in COMM_POLICIES:
        program = lower(schedule, comm=comm)
        check_program(program)
        timeline = simulate(program, costs)
        if not np.isfinite(timeline.end).all():
            return False
    return sorted(text for row in schedule.orders for text in row) == sorted(
        {t for row in schedule.orders for t in row}
    )


@pytest.mark.parametrize("name", _SCHEDULES)
def test_no_broken_schedule_slips_through(name: str) -> None:
    check(_SCHEDULES[name]())
    for mutant in _mutants(name):
        refusal = _refusal(mutant)
        if refusal is None:
            assert _runs(mutant.schedule), f"{mutant.what} of {mutant.changed} was let through"
            assert mutant.what not in ("drop", "double", "emigrate"), f"{mutant.what} of {mutant.changed}"
        elif mutant.what in ("drop", "double", "emigrate"):
            assert mutant.changed in refusal or "replicas of the model" in refusal
        else:
            assert any(letter in refusal for letter in "FBIWXL"), refusal


def test_there_are_more_than_a_thousand_and_most_are_refused() -> None:
    mutants = [mutant for name in _SCHEDULES for mutant in _mutants(name)]
    refused = [mutant for mutant in mutants if _refusal(mutant)]
    assert len(mutants) >= 1000
    assert len(refused) >= 1000


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-v", "chimera", "seq1f1b", "dualpipe"])
def test_no_broken_program_slips_through(name: str) -> None:
    """A transfer dropped, doubled, put elsewhere or swapped: refused for its channel, its place, or a deadlock."""
    chance = random.Random(name)
    refusals = []
    for comm in COMM_POLICIES:
        program = lower(_SCHEDULES[name](), comm=comm)
        for _ in range(_OF_EACH):
            rows, what = _changed_program(program, chance)
            refusal = _refusal_of_rows(program, rows)
            refusals.append(refusal)
            assert refusal is None or any(word in refusal for word in ("SEND", "RECV", "send", "receive")), refusal
            assert refusal is not None or what not in ("drop", "double"), f"{what} was let through"
    assert refusals.count(None) < len(refusals) / 2


def _refusal_of_rows(old: Program, rows: list[tuple[Atoms, Ints]]) -> str | None:
    """Why changed rows are refused; None where they are let through, and then also run."""
    try:
        changed = program_from_rows(old.schedule, [row for row, _ in rows], [flow for _, flow in rows], comm=old.comm)
        check_program(changed)
    except (BrokenSchedule, Deadlock) as fault:
        return str(fault)
    costs = plain_costs({"F": 1.0, "I": 1.0, "W": 0.5, "C": 0.25}).of(old.schedule)
    assert np.isfinite(simulate(changed, costs).end).all()
    return None


def _changed_program(program: Program, chance: random.Random) -> tuple[list[tuple[Atoms, Ints]], str]:
    order = [list(program.row(rank)) for rank in range(program.ranks)]
    rank = chance.choice([rank for rank, row in enumerate(order) if any(_is_transfer(program, op) for op in row)])
    places = [place for place, op in enumerate(order[rank]) if _is_transfer(program, op)]
    at, what = chance.choice(places), chance.choice(["drop", "double", "displace", "swap"])
    if what == "drop":
        del order[rank][at]
    elif what == "double":
        order[rank].insert(chance.randrange(len(order[rank]) + 1), order[rank][at])
    elif what == "displace":
        order[rank].insert(max(0, at + chance.choice([-2, -1, 1, 2])), order[rank].pop(at))
    else:
        other = chance.choice(places)
        order[rank][at], order[rank][other] = order[rank][other], order[rank][at]
    return [(program.ops.take(np.array(row)), program.flow[np.array(row)]) for row in order], what


def _is_transfer(program: Program, op: int) -> bool:
    return bool(program.ops.kind[op] in (Kind.SEND, Kind.RECV))
