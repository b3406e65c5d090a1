"""One door to the engines: the fast one where it can and pays, the reference engine elsewhere."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, cast

from pipesim.costs.costs import Costs
from pipesim.engine.contention import SharedLinks
from pipesim.ir.program import Program
from pipesim.timeline import Timeline

Engine = Literal["auto", "event", "fast"]
ENGINES: tuple[Engine, ...] = ("auto", "event", "fast")

_SMALL = 3_000  # operations that SimPy walks in less time than numba takes to be imported


def simulate(program: Program, costs: Costs, engine: Engine = "auto") -> Timeline:
    """When each operation of a program runs.

    auto: the reference engine for small programs and where links are shared, else the fast one.
    Raises Deadlock, NoCost, WrongStages; with `fast` also SharedLinks.
    """
    if engine == "event" or (engine == "auto" and len(program) <= _SMALL):
        return _run("event", program, costs)
    try:
        return _run("fast", program, costs)
    except SharedLinks:
        if engine == "fast":
            raise
        return _run("event", program, costs)


def _run(engine: str, program: Program, costs: Costs) -> Timeline:
    """Each engine is imported when it is used: SimPy and numba both take their time."""
    return cast(Timeline, import_module(f"pipesim.engine.{engine}").simulate(program, costs))
