"""Costs from plain numbers: `F=18.5ms,I=18ms,W=9ms,C=0.6ms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Costs, Floats, WrongStages
from pipesim.costs.network import Network, Route
from pipesim.errors import PipesimError
from pipesim.ir.action import Kind
from pipesim.ir.schedule import Schedule
from pipesim.units import BadQuantity, parse_fraction, parse_seconds

KEYS = ("F", "B", "I", "W", "C", "FB", "overlap", "reduce", "optimizer", "host")
MOST_SECONDS = 1e12  # 30 000 years; a step of many such actions still adds up to a finite number


@dataclass(eq=False)
class BadCosts(PipesimError):
    """A costs text that cannot be read."""

    text: str
    reason: str

    def __str__(self) -> str:
        return f"costs {self.text!r}: {self.reason}; expected e.g. F=10ms,I=10ms,W=5ms,C=0.5ms"


@dataclass(frozen=True)
class PlainCosts:
    """Numbers as given: one for all (a rank's whole share of a microbatch), or a list with one a stage.

    F, B, I, W: seconds of the actions; C: of one message; FB: of a fused pair; overlap: the part of the
    shorter of a fused pair that is hidden; reduce, optimizer: seconds a rank; host: seconds an action.
    """

    values: Mapping[str, float | tuple[float, ...]]

    def number(self, key: str, default: float = 0.0) -> float:
        """One number for a key; the mean of a list. B that was given as I and W is their sum."""
        value = self.values.get(key, default)
        return float(np.mean(value))

    def of(self, schedule: Schedule) -> Costs:
        """Costs of a schedule: a single number is shared out over a rank's stages and a microbatch's slices.

        Raises WrongStages for a list of another length.
        """
        placement = schedule.placement
        share = placement.share / schedule.slices
        stages = placement.stages

        def per_stage(key: str, part: float) -> Floats:
            value = self.values[key]
            if isinstance(value, tuple):
                if len(value) not in (stages, placement.length):
                    raise WrongStages(key, len(value), placement.length)
                return np.tile(np.asarray(value), stages // len(value)) / schedule.slices
            return np.full(stages, value * part)

        seconds = {Kind[key]: per_stage(key, share) for key in ("F", "B", "I", "W") if key in self.values}
        per_rank_part = 1.0 / (stages / placement.ranks)
        return Costs(
            stages,
            seconds,
            pair_s=per_stage("FB", share) if "FB" in self.values else None,
            overlap=self.number("overlap"),
            network=Network(default=Route(latency_s=self.number("C"))),
            reduce_s=per_stage("reduce", per_rank_part) if "reduce" in self.values else None,
            optimizer_s=per_stage("optimizer", per_rank_part) if "optimizer" in self.values else None,
            host_s=self.number("host"),
        )


def parse_costs(text: str) -> PlainCosts:
    """Read `F=18.5ms,I=18ms,W=9ms,C=0.6ms`; a list a stage is `F=1ms:1ms:2ms`. Raises BadCosts, BadQuantity."""
    values: dict[str, float | tuple[float, ...]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in KEYS:
            raise BadCosts(text, f"{part!r} is not one of {', '.join(KEYS)} with a value")
        if key in values:
            raise BadCosts(text, f"{key} is given twice")
        values[key] = _number(key, value)
    return plain_costs(values, text)


def plain_costs(values: Mapping[str, float | Sequence[float]], text: str | None = None) -> PlainCosts:
    """Costs from numbers in seconds, e.g. `plain_costs({"F": 1, "I": 1, "W": 1})`. Raises BadCosts, BadQuantity."""
    shown = text if text is not None else ",".join(f"{key}={value}" for key, value in values.items())
    unknown = [key for key in values if key not in KEYS]
    if unknown:
        raise BadCosts(shown, f"{unknown[0]!r} is not one of {', '.join(KEYS)}")
    if "F" not in values:
        raise BadCosts(shown, "F is missing")
    if "B" in values and ("I" in values or "W" in values):
        raise BadCosts(shown, "B = I + W: give B, or I and W, not both")
    if ("I" in values) != ("W" in values):
        raise BadCosts(shown, "I and W go together")
    return PlainCosts({key: _checked(key, value) for key, value in values.items()})


def _number(key: str, value: str) -> float | tuple[float, ...]:
    if key == "overlap":
        return parse_fraction(value, name=key)
    parts = [parse_seconds(piece, name=key) for piece in value.split(":")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _checked(key: str, value: float | Sequence[float]) -> float | tuple[float, ...]:
    if isinstance(value, int | float):
        return _seconds(key, value)
    return tuple(_seconds(key, one) for one in value)


def _seconds(key: str, value: float) -> float:
    seconds = parse_seconds(value, name=key)
    if seconds > MOST_SECONDS:
        raise BadQuantity(key, value, f"must be at most {MOST_SECONDS:g} s", "18.5ms")
    return seconds
