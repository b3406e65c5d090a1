"""`pipesim check NAME|FILE`: is a schedule complete, right, and free of deadlock?"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from pipesim.cli.options import (
    Group,
    MemoryLimit,
    Microbatches,
    Name,
    Offload,
    Option,
    Ranks,
    Slices,
    Virtual,
    schedule_from_options,
    transfers_of,
)
from pipesim.errors import PipesimError
from pipesim.ir.check import BrokenSchedule, check_program
from pipesim.ir.check import check as check_schedule
from pipesim.ir.lower import lower
from pipesim.ir.memory import peak_activations
from pipesim.ir.order import Deadlock
from pipesim.ir.program import COMM_POLICIES, Comm
from pipesim.ir.schedule import Schedule

_MOST_SHOWN = 50


@dataclass(eq=False)
class UnknownComm(PipesimError):
    """A lane policy that is none."""

    given: str

    def __str__(self) -> str:
        return f"--comm {self.given}: no such policy; there are {', '.join(COMM_POLICIES)}"


def check(
    name: Name,
    ranks: Ranks = None,
    microbatches: Microbatches = None,
    virtual: Virtual = None,
    group: Group = None,
    slices: Slices = None,
    memory_limit: MemoryLimit = None,
    offload: Offload = None,
    option: Option = None,
    max_activations: Annotated[
        float | None, typer.Option("--max-activations", help="Most microbatches of activations a rank may hold.")
    ] = None,
    comm: Annotated[str, typer.Option("--comm", help="Lanes of transfers: edge, pair, rank or blocking.")] = "edge",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> int:
    """Check that a schedule is complete, correctly placed, free of deadlock and within its memory.

    Status 0 if it is, 2 if not. A CSV with communication is checked in its own order of transfers.
    """
    lanes = next((policy for policy in COMM_POLICIES if policy == comm), None)
    if lanes is None:
        raise UnknownComm(comm)
    try:
        made = schedule_from_options(
            name,
            ranks=ranks,
            microbatches=microbatches,
            virtual=virtual,
            group=group,
            slices=slices,
            memory_limit=memory_limit,
            offload=offload,
            option=option,
        )
        check_schedule(made, max_activations=max_activations)
        written = transfers_of(name, made, lanes)  # checked, if there
        if written is None:
            check_program(lower(made, comm=lanes))
    except (BrokenSchedule, Deadlock) as error:
        return _report(name, _faults(error), as_json)
    if as_json:
        return _report(name, [], as_json)
    print(_praise(made, lanes, own_transfers=written is not None))
    return 0


def _faults(error: BrokenSchedule | Deadlock) -> list[str]:
    return list(error.faults) if isinstance(error, BrokenSchedule) else [str(error)]


def _report(name: str, faults: list[str], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"name": name, "ok": not faults, "faults": faults}, indent=1, ensure_ascii=False))
    else:
        for fault in faults[:_MOST_SHOWN]:
            print(f"{name}: {fault}", file=sys.stderr)
        if len(faults) > _MOST_SHOWN:
            print(f"{name}: and {len(faults) - _MOST_SHOWN} more", file=sys.stderr)
    return 2 if faults else 0


def _praise(made: Schedule, comm: Comm, *, own_transfers: bool) -> str:
    peaks = peak_activations(made)
    transfers = "its own transfers" if own_transfers else "transfers"
    return "\n".join(
        [
            f"{made.name}: {made.ranks} ranks, {made.placement.stages} stages ({made.placement.kind()}), "
            f"{made.microbatches} microbatches, {len(made)} actions",
            "complete, correctly placed, every action's needs are met",
            f"free of deadlock with {transfers} in {comm} lanes, every send waiting for its receive",
            f"peak activations {peaks.max():g} microbatches (rank {int(peaks.argmax())})",
        ]
    )
