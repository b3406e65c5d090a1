"""Groups of options: declared once as the fields of a dataclass, taken by every command that has a parameter of it.

    @dataclass(frozen=True)
    class ScheduleOptions:
        ranks: Annotated[int | None, typer.Option("--ranks", "-p")] = None

    def check(name: Name, schedule: ScheduleOptions) -> int: ...
    def estimate(name: Name, schedule: Annotated[ScheduleOptions, Without("offload")] = ScheduleOptions(ranks=1)): ...

A command takes the whole group or leaves some out, which then keep their defaults; a default of the parameter gives
other defaults to all its options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
import typer.main
from typer.models import ParameterInfo


@dataclass(frozen=True, init=False)
class Without:
    """Options of a group that a command does not offer."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


def ungrouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as typer wants it: each option of each group is a parameter of its own."""
    own = signature(command, eval_str=True)
    groups = {name: _Group(name, each) for name, each in own.parameters.items() if _group_of(each.annotation)}
    spread: list[Parameter] = []
    for name, parameter in own.parameters.items():
        spread += groups[name].parameters() if name in groups else [parameter.replace(kind=Parameter.KEYWORD_ONLY)]

    @wraps(command)
    def run(**given: Any) -> Any:
        made = {name: group.take(given) for name, group in groups.items()}
        return command(**given, **made)

    run.__signature__ = own.replace(parameters=spread)  # type: ignore[attr-defined]  # functions do have one
    run.__annotations__ = {each.name: each.annotation for each in spread}
    return run


def command_of(name: str, function: Callable[..., Any]) -> Any:
    """A function as a command of its own, with its `context_settings` if it has some."""
    alone = typer.Typer(add_completion=False)
    alone.command(name, context_settings=getattr(function, "context_settings", None))(ungrouped(function))
    return typer.main.get_command(alone)


class _Group:
    """A parameter that stands for the options of a dataclass."""

    def __init__(self, name: str, parameter: Parameter) -> None:
        self.type: Any = _group_of(parameter.annotation)
        self.usual = self.type() if parameter.default is Parameter.empty else parameter.default
        left_out = {name for extra in get_args(parameter.annotation)[1:] for name in extra.names}
        self.names = [field.name for field in fields(self.type) if field.name not in left_out]
        assert left_out <= {field.name for field in fields(self.type)}, f"{name}: {left_out} of {self.type}"

    def parameters(self) -> Iterator[Parameter]:
        hints = get_type_hints(self.type, include_extras=True)
        panel = getattr(self.type, "panel", None)
        for name in self.names:
            annotation = _in_panel(hints[name], panel)
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(self.usual, name), annotation=annotation)

    def take(self, given: dict[str, Any]) -> Any:
        """The group's value; what it is made of is taken out of `given`."""
        values = {field.name: getattr(self.usual, field.name) for field in fields(self.type)}
        return self.type(**values | {name: given.pop(name) for name in self.names})


def _group_of(annotation: Any) -> Any:
    """The dataclass that a parameter is a group by; None for other parameters."""
    base = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return base if is_dataclass(base) else None


def _in_panel(annotation: Any, panel: str | None) -> Any:
    """The same option, under a heading in the help."""
    base, info = get_args(annotation)
    assert isinstance(info, ParameterInfo), f"{base}: no option"
    info = copy(info)
    info.rich_help_panel = info.rich_help_panel or panel
    return Annotated[base, info]


def changed(group: Any, *, but: Collection[str] = ()) -> str | None:
    """An option of the group that is not as usual, as it is given on a command line; None where all are.

    but: fields that may be.
    """
    usual, hints = type(group)(), get_type_hints(type(group), include_extras=True)
    for field in fields(group):
        if field.name not in but and getattr(group, field.name) != getattr(usual, field.name):
            return str(get_args(hints[field.name])[1].default)  # the first of its names, where typer keeps it
    return None
