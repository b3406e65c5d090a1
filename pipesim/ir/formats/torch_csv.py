"""PyTorch's schedule files (torch 2.13, `_PipelineScheduleRuntime._load_csv` and `_dump_csv`).

A row a rank, a cell an action; an empty cell is a step in which the rank idles. Compute-only files hold
`2F0`, `2B0`, `2I0`, `2W0` and pairs `(0F3;3B1)OVERLAP_F_B`; files with communication also `1SEND_F3`,
`2RECV_F3`, `2SEND_B3`, `1RECV_B3`, `0UNSHARD`, `0RESHARD` and `1REDUCE_GRAD`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.formats.parts import CannotExpress, MalformedFile, assemble
from pipesim.ir.lower import lower_in_one_order
from pipesim.ir.needs import Flow
from pipesim.ir.program import Comm, Program
from pipesim.ir.program_rows import program_from_rows
from pipesim.ir.schedule import Schedule

_CELL = re.compile(r"(\d{1,9})(SEND_F|SEND_B|RECV_F|RECV_B|REDUCE_GRAD|UNSHARD|RESHARD|F|B|I|W)(\d{0,9})")
_PAIR = re.compile(r"\(([^();]*);([^();]*)\)OVERLAP_F_B")
_SHARDING = ("UNSHARD", "RESHARD")  # when torch's FSDP gathers weights; a schedule here says nothing of it
_ALONE = (*_SHARDING, "REDUCE_GRAD")  # words without a microbatch
_KINDS: dict[str, tuple[Kind, Flow]] = {
    "SEND_F": (Kind.SEND, Flow.ACTIVATION),
    "RECV_F": (Kind.RECV, Flow.ACTIVATION),
    "SEND_B": (Kind.SEND, Flow.GRADIENT),
    "RECV_B": (Kind.RECV, Flow.GRADIENT),
    "REDUCE_GRAD": (Kind.REDUCE, Flow.LOCAL),
    **{kind.name: (kind, Flow.LOCAL) for kind in (Kind.F, Kind.B, Kind.I, Kind.W)},
}

_Op = tuple[int, int, int, bool, int]  # kind, stage, microbatch, fused, flow


def dumps(schedule: Schedule) -> str:
    """Compute actions only; torch adds the communication itself. Raises CannotExpress."""
    _require_expressible(schedule)
    return _csv([_cell(text) for text in order] for order in schedule.orders)


def dumps_with_transfers(schedule: Schedule) -> str:
    """With communication, in an order that is right however torch queues its transfers. Raises CannotExpress.

    Weights are gathered at the start and released at the end, should the stages be sharded (FSDP).
    """
    _require_expressible(schedule)
    return dumps_program(lower_in_one_order(schedule, reduce=True))


def dumps_program(program: Program) -> str:
    """A program's compute actions, transfers and gradient reductions as they stand. Raises CannotExpress."""
    _require_expressible(program.schedule)
    return _csv(_program_row(program, rank) for rank in range(program.ranks))


def loads(text: str, source: str = "schedule") -> Schedule:
    """The compute actions of a file of either kind. Raises MalformedFile."""
    rows = [[op for op in row if op[0] <= Kind.W] for row in _rows(text, source)]
    return assemble(source, "torch-csv", [_atoms(row) for row in rows])


def loads_program(text: str, source: str = "schedule", *, comm: Comm = "edge") -> Program | None:
    """The file's actions and transfers in its own order; None if it holds no transfers.

    Each rank's optimizer step is added at its end, as torch leaves it to the caller.
    Raises MalformedFile, BrokenSchedule where transfers do not fit the actions.
    """
    rows = _rows(text, source)
    if not any(op[0] in (Kind.SEND, Kind.RECV) for row in rows for op in row):
        return None
    schedule = loads(text, source)
    for rank, row in enumerate(rows):
        row.append((Kind.STEP, schedule.placement.stages_of(rank)[0], schedule.microbatches - 1, False, Flow.LOCAL))
    flows = [np.array([op[4] for op in row], np.int8) for row in rows]
    return program_from_rows(schedule, [_atoms(row) for row in rows], flows, comm=comm)


def _require_expressible(schedule: Schedule) -> None:
    atoms = schedule.atoms
    for there, what in (
        (schedule.placement.chains > 1, "two replicas of a stage"),
        (schedule.slices > 1, "sequence slices"),
        (bool((atoms.kind > Kind.W).any()), "activation moves"),
        (schedule.update_every is not None, "optimizer steps between microbatches"),
    ):
        if there:
            raise CannotExpress("torch's .csv", what)


def _csv(rows: Iterable[list[str]]) -> str:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue()


def _cell(text: str) -> str:
    """A pair `0F3&3B1` in torch's writing."""
    return f"({text.replace('&', ';')})OVERLAP_F_B" if "&" in text else text


def _program_row(program: Program, rank: int) -> list[str]:
    cells: list[str] = []
    for op in program.row(rank):
        if program.ops.kind[op] == Kind.STEP:
            continue
        if program.ops.fused[op]:
            cells[-1] = _cell(f"{cells[-1]}&{program.text(op)}")
        else:
            cells.append(program.text(op))
    stages = program.schedule.placement.stages_of(rank)
    return [*(f"{stage}UNSHARD" for stage in stages), *cells, *(f"{stage}RESHARD" for stage in stages)]


def _rows(text: str, source: str) -> list[list[_Op]]:
    try:
        found = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise MalformedFile(source, "", f"is not CSV: {error}") from None
    while found and not any(cell.strip() for cell in found[-1]):
        found.pop()
    return [_row(cells, source, rank) for rank, cells in enumerate(found)]


def _row(cells: Sequence[str], source: str, rank: int) -> list[_Op]:
    ops: list[_Op] = []
    for place, cell in enumerate(cells):
        word = cell.strip()
        if word:
            try:
                ops += _ops(word)
            except ValueError:
                raise MalformedFile(
                    source,
                    f"row {rank + 1}, cell {place + 1}",
                    f"{word!r:.40} is not one of torch's actions, such as 2F0, 2B0, 1SEND_F0 or (0F3;3B1)OVERLAP_F_B",
                ) from None
    return ops


def _ops(word: str) -> list[_Op]:
    """The operations of one cell. Raises ValueError."""
    pair = _PAIR.fullmatch(word)
    if pair:
        first, second = (_op(part.strip(), fused) for part, fused in zip(pair.groups(), (False, True), strict=True))
        if first is None or second is None or max(first[0], second[0]) > Kind.W:
            raise ValueError
        return [first, second]
    op = _op(word, False)
    return [op] if op else []


def _op(word: str, fused: bool) -> _Op | None:
    found = _CELL.fullmatch(word)
    if found is None or (found[3] == "") != (found[2] in _ALONE):
        raise ValueError
    if found[2] in _SHARDING:
        return None
    kind, flow = _KINDS[found[2]]
    return (kind, int(found[1]), int(found[3] or 0), fused, flow)


def _atoms(row: Sequence[_Op]) -> Atoms:
    columns = np.array(row, np.int64).reshape(-1, 5).T
    return Atoms.of(columns[0], columns[1], columns[2], fused=columns[3].astype(np.bool_))
