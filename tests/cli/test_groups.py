"""Options declared once in a group, taken by commands whole or in part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from pipesim.cli.options.groups import Without, ungrouped


@dataclass(frozen=True)
class Times:
    panel: ClassVar[str] = "Times"

    forward: Annotated[float, typer.Option("--forward", "-f", help="Of one microbatch.")] = 1.0
    backward: Annotated[float, typer.Option("--backward")] = 2.0


_SLOW = Times(10.0, 20.0)


def whole(name: str, times: Times, loud: bool = False) -> None:
    print(name, times, loud)


def partly(times: Annotated[Times, Without("forward")] = _SLOW) -> None:
    """Backward only."""
    print(times)


def run(command: object, *args: str) -> tuple[int, str]:
    app = typer.Typer(add_completion=False)
    app.command()(ungrouped(command))  # type: ignore[arg-type]
    done = CliRunner().invoke(app, args, env={"COLUMNS": "120"})
    return done.exit_code, done.output


def test_a_command_gets_the_group_as_one_value() -> None:
    assert run(whole, "x", "-f", "3", "--loud") == (0, "x Times(forward=3.0, backward=2.0) True\n")
    assert run(whole, "x") == (0, "x Times(forward=1.0, backward=2.0) False\n")


def test_what_is_left_out_keeps_the_default_of_the_command() -> None:
    assert run(partly, "--backward", "5") == (0, "Times(forward=10.0, backward=5.0)\n")
    assert run(partly, "--forward", "5")[0] == 2


def test_the_help_shows_a_group_under_its_heading() -> None:
    status, out = run(whole, "--help")
    assert status == 0
    assert "─ Times ─" in out
    assert "Of one microbatch." in out
    status, out = run(partly, "--help")
    assert "Backward only." in out
    assert "--forward" not in out


def test_leaving_out_what_is_not_there_is_a_mistake_of_ours() -> None:
    def wrong(times: Annotated[Times, Without("sideways")]) -> None:
        print(times)

    with pytest.raises(AssertionError, match="sideways"):
        ungrouped(wrong)
