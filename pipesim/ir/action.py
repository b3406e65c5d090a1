"""One thing a rank does: its kind, stage, microbatch and sequence slice, and its text form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from pipesim.errors import PipesimError


class Kind(IntEnum):
    """What an action or a lowered operation does.

    The zero-bubble papers write B for what is `I` here and treat `B` as `I` + `W`.
    """

    F = 0  # forward
    B = 1  # full backward: input and weight gradient
    I = 2  # input gradient  # noqa: E741 - the field's own letter
    W = 3  # weight gradient
    X = 4  # move an activation out of this rank's memory (to the host or a partner rank)
    L = 5  # load it back
    SEND = 6
    RECV = 7
    REDUCE = 8  # sum a stage's gradients over its replicas (data parallel, or two directions)
    STEP = 9  # optimizer step


COMPUTE = (Kind.F, Kind.B, Kind.I, Kind.W)
MOVES = (Kind.X, Kind.L)

_TEXT = re.compile(r"(\d{1,9})([FBIWXL])(\d{1,9})(?:\.(\d{1,9}))?")


@dataclass(eq=False)
class MalformedAction(PipesimError):
    """A text that is not an action."""

    text: str

    def __str__(self) -> str:
        return (
            f"{self.text!r} is not an action: expected stage, kind (F, B, I, W, X or L) and microbatch "
            "as in 2F0, with a slice as in 2F0.1, a fused pair as in 2F3&5B1"
        )


@dataclass(frozen=True, order=True, slots=True)
class Action:
    """One compute action (or activation move) of one stage for one microbatch, or one slice of it."""

    kind: Kind
    stage: int
    microbatch: int
    slice: int = 0

    def __str__(self) -> str:
        return action_text(self.kind, self.stage, self.microbatch, self.slice)


def action_text(kind: int, stage: int, microbatch: int, slice: int = 0) -> str:
    """`2F0`: stage, kind, microbatch; slice 0 is left out, as a schedule without slices has no other."""
    tail = f".{slice}" if slice else ""
    return f"{stage}{Kind(kind).name}{microbatch}{tail}"


def parse_action(text: str) -> Action:
    """Read `2F0` or `2F0.1`. Raises MalformedAction."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise MalformedAction(text)
    stage, kind, microbatch, slice_ = found.groups()
    return Action(Kind[kind], int(stage), int(microbatch), int(slice_ or 0))


def parse_group(text: str) -> tuple[Action, ...]:
    """Read one action, or a fused pair joined by `&`. Raises MalformedAction."""
    return tuple(parse_action(part) for part in text.split("&"))
