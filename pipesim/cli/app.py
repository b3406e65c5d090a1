"""Finds a sub-command, runs it, and turns what goes wrong into one line and an exit status.

Status: 0 done; 2 what was asked for cannot work; 1 the reader of our output went away; 130 Ctrl-C.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from pipesim import __version__
from pipesim.cli.options.groups import command_of
from pipesim.errors import PipesimError

# Sub-command -> its file, which has a function of that name (`-` written `_`), or a `typer.Typer` of several.
COMMANDS: dict[str, str] = {
    "simulate": "pipesim.cli.simulate",
    "compare": "pipesim.cli.compare",
    "report": "pipesim.cli.report",
    "show": "pipesim.cli.show",
    "app": "pipesim.cli.playground",
    "schedules": "pipesim.cli.schedules",
    "schedule": "pipesim.cli.schedule",
    "check": "pipesim.cli.check",
    "plan": "pipesim.cli.plan",
    "sweep": "pipesim.cli.sweep",
    "catalog": "pipesim.cli.catalog",
    "estimate": "pipesim.cli.estimate",
    "predict": "pipesim.cli.predict",
    "goodput": "pipesim.cli.goodput",
    "run": "pipesim.cli.run",
    "profile": "pipesim.cli.profile",
    "validate": "pipesim.cli.validate",
    "generate": "pipesim.cli.generate",
    "search": "pipesim.cli.search",
    "launch": "pipesim.cli.launch",
    "serving": "pipesim.cli.serving",
}


@dataclass(eq=False)
class UnknownCommand(PipesimError):
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        close = get_close_matches(self.name, self.known)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(self.known)}"
        return f"no command {self.name!r}; {hint}"


class _Commands(typer.core.TyperGroup):
    """Imports the file of a sub-command when it is asked for, so that each starts as fast as it can."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return _load(cmd_name)
        if ctx.resilient_parsing:  # a shell completes a command line
            return None
        raise UnknownCommand(cmd_name, tuple(COMMANDS))


def _load(name: str) -> Any:
    found = getattr(import_module(COMMANDS[name]), name.replace("-", "_"))
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    return command_of(name, found)


app = typer.Typer(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pipesim {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _pipesim(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Simulate, draw, compare, search and run pipeline-parallel training schedules."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line; the exit status."""
    try:
        status = app(args=args, prog_name="pipesim", standalone_mode=False)
        sys.stdout.flush()
    except (PipesimError, typer.TyperException) as error:
        return _fail(error)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The flush at exit would fail again: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, OverflowError, MemoryError) as error:
        return _fail(error)
    return status if isinstance(status, int) else 0


def _fail(error: Exception) -> int:
    match error:
        case typer.TyperException():
            message = error.format_message()
        case OSError(strerror=str(reason), filename=path):
            message = f"{path}: {reason}" if path else reason
        case OverflowError():
            message = f"a number is beyond all that can be computed with: {error}"
        case MemoryError():
            message = f"not enough memory for this: {error}".rstrip(": ")
        case _:
            message = str(error)
    print(f"pipesim: error: {message}", file=sys.stderr)
    return 2
