"""Reads the YAML files of the catalogue and finds names in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pipesim.errors import PipesimError

CATALOG = Path(__file__).parent / "catalog"
KERNELS = Path(__file__).parent / "kernels"


@dataclass(eq=False)
class UnknownName(PipesimError):
    """A name that the catalogue does not have."""

    what: str
    name: str
    known: tuple[str, ...]
    """Every name that would do."""
    listed: tuple[str, ...]
    """Those worth listing when nothing is close."""

    def __str__(self) -> str:
        close = get_close_matches(self.name.lower(), self.known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(self.listed)}"
        return f"unknown {self.what} {self.name!r}; {hint}"


def loader() -> type[yaml.SafeLoader]:
    """The C loader where PyYAML was built with it: ten times as fast."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def read_catalogue(file: str) -> dict[str, Any]:
    """Content of one YAML file of the catalogue."""
    content: dict[str, Any] = yaml.load((CATALOG / file).read_text("utf-8"), Loader=loader())
    return content


def unknown(what: str, name: str, known: Iterable[str], *, listed: Iterable[str] | None = None) -> UnknownName:
    """The error for `name`, with the close ones among `known`; without any, all of `listed`."""
    names = tuple(sorted(known))
    return UnknownName(what, name[:80], names, tuple(listed) if listed is not None else names)
