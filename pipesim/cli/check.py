"""`pipesim check NAME|FILE`: is a schedule complete, right, and free of deadlock?"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from pipesim.cli.options.case import CommPolicy, policy_of
from pipesim.cli.options.outputs import Json
from pipesim.cli.options.schedule import Name, ScheduleOptions, schedule_from_options, transfers_of
from pipesim.ir.check import BrokenSchedule, check_program
from pipesim.ir.check import check as check_schedule
from pipesim.ir.lower import lower
from pipesim.ir.memory import peak_activations
from pipesim.ir.order import Deadlock
from pipesim.ir.program import Comm
from pipesim.ir.schedule import Schedule

_MOST_SHOWN = 50


def check(
    name: Name,
    schedule: ScheduleOptions,
    max_activations: Annotated[
        float | None, typer.Option("--max-activations", help="Most microbatches of activations a rank may hold.")
    ] = None,
    comm: CommPolicy = "edge",
    as_json: Json = False,
) -> int:
    """Check that a schedule is complete, correctly placed, free of deadlock and within its memory.

    Status 0 if it is, 2 if not. A CSV with communication is checked in its own order of transfers.

    Example: pipesim check zb-h1 -p 4 -m 8 --max-activations 4
    """
    lanes = policy_of(comm)
    try:
        made = schedule_from_options(name, schedule)
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
