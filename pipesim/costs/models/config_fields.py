"""Typed look-ups in a parsed `config.json` that collect every problem, so that one error names them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipesim.errors import PipesimError

_MOST = 1 << 40


@dataclass(eq=False)
class BadConfig(PipesimError):
    """A `config.json` that cannot be read as a model."""

    source: str
    problem: str

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}"


class Fields:
    """The fields of one JSON object. A look-up that fails gives a harmless value and is remembered."""

    def __init__(self, values: Mapping[str, object], source: str) -> None:
        self.values = values
        self.source = source
        self.missing: list[str] = []
        self.problems: list[str] = []

    def problem(self, text: str) -> None:
        """Remember something that is wrong."""
        if text not in self.problems:
            self.problems.append(text)

    def raise_problems(self, model_type: str) -> None:
        """One `BadConfig` for all that was missing or wrong."""
        lacks = [f"{model_type} needs {', '.join(self.missing)}"] if self.missing else []
        if lacks or self.problems:
            raise BadConfig(self.source, "; ".join(lacks + self.problems))

    def whole(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least` under the first of `names` that is there."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST:
                return value
            self.problem(f"{name} = {_short(value)} must be a whole number from {least} to {_MOST}")
            return max(least, 1)
        if default is None:
            if names[0] not in self.missing:
                self.missing.append(names[0])
            return max(least, 1)
        return default

    def optional(self, name: str) -> int | None:
        """A whole number, or None where the field is absent or null."""
        return self.whole(name) if self.values.get(name) is not None else None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(f"{name} = {_short(value)} must be true or false")
            return default
        return value

    def text(self, *names: str, default: str) -> str:
        """Words under the first of `names` that is there."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str):
                return value
            if value is not None:
                self.problem(f"{name} = {_short(value)} must be text")
        return default

    def any_positive(self, *names: str, default: float = 0.0) -> bool:
        """Whether one of several rates (dropout) is above zero; `default` where none is given."""
        values = [self.values[name] for name in names if self.values.get(name) is not None]
        return any(isinstance(value, int | float) and value > 0 for value in values or [default])

    def part(self, name: str) -> Fields | None:
        """A nested object, or None where it is absent; problems are remembered in both."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.problem(f"{name} = {_short(value)} must be an object")
            return None
        return self._with(value)

    def with_defaults(self, **defaults: int) -> Fields:
        """The same fields, with `defaults` where one is absent; problems are remembered in both."""
        return self._with({**defaults, **{k: v for k, v in self.values.items() if v is not None}})

    def _with(self, values: Mapping[str, object]) -> Fields:
        other = Fields(values, self.source)
        other.missing, other.problems = self.missing, self.problems
        return other


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
