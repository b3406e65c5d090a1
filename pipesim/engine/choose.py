"""One door to the engines: the fast one where it can and pays, the reference engine elsewhere."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, cast

from pipesim.costs.costs import Costs
from pipesim.engine.contention import SharedLinks
from pipesim.engine.durations import Durations
from pipesim.ir.program import Program
from pipesim.timeline import Timeline

Engine = Literal["auto", "event", "fast"]
ENGINES: tuple[Engine, ...] = ("auto", "event", "fast")

_SMALL = 3_000  # operations that SimPy walks in less time than numba takes to be imported


def simulate(program: Program, costs: Costs, engine: Engine = "auto", timing: Durations | None = None) -> Timeline:
    """When each operation of a program runs.

    auto: the reference engine for small programs and where links are shared, else the fast one.
    timing: times to take instead of those the costs give.
    Raises Deadlock, NoCost, WrongStages; with `fast` also SharedLinks.
    """
    if engine == "event" or (engine == "auto" and len(program) <= _SMALL):
        return _run("event", program, costs, timing)
    try:
        return _run("fast", program, costs, timing)
    except SharedLinks:
        if engine == "fast":
            raise
        return _run("event", program, costs, timing)


def _run(engine: str, program: Program, costs: Costs, timing: Durations | None) -> Timeline:
    """Each engine is imported when it is used: SimPy and numba both take their time."""
    return cast(Timeline, import_module(f"pipesim.engine.{engine}").simulate(program, costs, timing))
