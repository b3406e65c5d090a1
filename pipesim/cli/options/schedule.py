"""Options that choose a schedule: the same in every command that takes one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from pipesim.errors import PipesimError
from pipesim.ir.check import check_program
from pipesim.ir.formats import read_program
from pipesim.ir.program import Comm, Program
from pipesim.ir.schedule import Schedule
from pipesim.schedules.lookup import build, find, is_file
from pipesim.schedules.offload import with_offload

Name = Annotated[
    str, typer.Argument(help="A schedule (`pipesim schedules` lists them), my_module.py:build, or a file of orders.")
]


def _microbatches(text: str | float) -> float:
    """A number of microbatches, as `pipesim search` takes it too."""
    try:
        return float(str(text).strip().removesuffix("mb"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number of microbatches such as 4mb or 4") from None


@dataclass(frozen=True)
class ScheduleOptions:
    """Beside its name, what says which schedule is meant, as given on a command line."""

    panel: ClassVar[str] = "Schedule"

    ranks: Annotated[int | None, typer.Option("--ranks", "--pp", "-p", help="Pipeline ranks.")] = None
    microbatches: Annotated[int | None, typer.Option("--microbatches", "-m", help="Microbatches a step.")] = None
    virtual: Annotated[int | None, typer.Option("--virtual", "-v", help="Stages a rank.")] = None
    group: Annotated[
        int | None, typer.Option("--group", help="Microbatches that pass a stage before the next one runs.")
    ] = None
    slices: Annotated[int | None, typer.Option("--slices", help="Sequence slices a microbatch (decode: tokens).")] = (
        None
    )
    memory_limit: Annotated[
        float | None,
        typer.Option(
            "--memory-limit",
            parser=_microbatches,
            metavar="4mb",
            help="Most activations a rank holds, in microbatches.",
        ),
    ] = None
    offload: Annotated[
        float | None, typer.Option("--offload", help="Part of the activations moved to host memory, 0 to 1.")
    ] = None
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="KEY=VALUE", help="Any other option of the schedule.")
    ] = None


# What every schedule has, so that it is no option of one.
_NAMED = {
    "name": "the argument, e.g. 1f1b",
    "ranks": "--ranks, e.g. --ranks 4",
    "microbatches": "--microbatches, e.g. --microbatches 8",
}


@dataclass(eq=False)
class BadOption(PipesimError):
    """An option of a schedule that is not written as one."""

    given: str
    rule: str = "expected a name and a value, as in --option virtual=2"

    def __str__(self) -> str:
        return f"--option {self.given!r}: {self.rule}"


def schedule_from_options(
    name: str, given: ScheduleOptions, *, offered: Mapping[str, Any] | None = None, lenient: bool = False
) -> Schedule:
    """The schedule that a command line asks for.

    offered: further options, such as the times a cost-aware family builds for; used where the family has them.
    lenient: also drop asked-for options that the family does not have (several families are compared).
    Raises what `pipesim.schedules.lookup.build` raises, and BadOption.
    """
    asked = {key: getattr(given, key) for key in ("virtual", "group", "slices", "memory_limit")}
    options = {key: value for key, value in asked.items() if value is not None}
    options |= dict(map(_parse_option, given.option or ()))
    if is_file(name):
        kept = {} if lenient else options
    else:
        known = find(name).options
        kept = {key: value for key, value in options.items() if key in known or not lenient}
        kept |= {key: value for key, value in (offered or {}).items() if key in known and key not in kept}
    schedule = build(name, ranks=given.ranks, microbatches=given.microbatches, **kept)
    return with_offload(schedule, share=given.offload) if given.offload is not None else schedule


def transfers_of(name: str, schedule: Schedule, comm: Comm) -> Program | None:
    """The program of a file that holds transfers, if the schedule is still the file's; it is checked.

    Raises BrokenSchedule, Deadlock.
    """
    if not is_file(name):
        return None
    program = read_program(name, comm=comm)
    if program is None or program.schedule != schedule:
        return None
    check_program(program)
    return program


def _parse_option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key.isidentifier() or not value.strip():
        raise BadOption(text)
    if key in _NAMED:
        raise BadOption(text, f"{key} is not one of these; give it as {_NAMED[key]}")
    return key, _parse_value(value.strip())


def _parse_value(text: str) -> Any:
    """A whole number, a number, true or false, else the text itself."""
    for read in (int, float):
        with suppress(ValueError):  # then it is something else
            return read(text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
