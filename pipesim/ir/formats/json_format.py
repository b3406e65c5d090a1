"""Our own JSON format, version 1: everything a schedule has (docs/formats.md)."""

from __future__ import annotations

import json
from typing import Any

from pipesim.ir.atoms import Atoms
from pipesim.ir.formats.parts import MalformedFile, assemble, parse_row
from pipesim.ir.schedule import Schedule

FORMAT = "pipesim-schedule"
VERSION = 1

_SLICINGS = ("causal", "autoregressive")
_KNOWN = (
    "format",
    "version",
    "name",
    "ranks",
    "microbatches",
    "placement",
    "chains",
    "slices",
    "slicing",
    "update_every",
    "refuge",
    "orders",
)


def document(schedule: Schedule) -> dict[str, Any]:
    """The schedule as plain lists, numbers and texts."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": schedule.name,
        "ranks": schedule.ranks,
        "microbatches": schedule.microbatches,
        "placement": list(schedule.placement.ranks_of_stages),
        "chains": schedule.placement.chains,
        "slices": schedule.slices,
        "slicing": schedule.slicing,
        "update_every": schedule.update_every,
        "refuge": list(schedule.refuge),
        "orders": schedule.orders,
    }


def dumps(schedule: Schedule) -> str:
    """A line a rank, so that two files can be compared line by line."""
    head = document(schedule)
    orders = ",\n".join("  " + json.dumps(order) for order in head.pop("orders"))
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    return "{\n" + ",\n".join([*lines, f' "orders": [\n{orders}\n ]']) + "\n}\n"


def loads(text: str, source: str = "schedule") -> Schedule:
    """Read what `dumps` wrote. Raises MalformedFile."""
    fields = _Fields(_parse(text, source), source)
    if fields.text("format", FORMAT) != FORMAT:
        raise fields.wrong("format", f"{FORMAT!r}")
    if fields.count("version", default=VERSION) != VERSION:
        raise fields.wrong("version", f"{VERSION}, all that this pipesim reads")
    unknown = next((key for key in fields.document if key not in _KNOWN), None)
    if unknown is not None:
        raise MalformedFile(source, "", f"has no field {unknown!r} in version {VERSION}: {', '.join(_KNOWN)}")
    orders = fields.orders()
    ranks = fields.count("ranks", default=len(orders))
    if ranks != len(orders):
        raise MalformedFile(source, "", f"ranks is {ranks}, but orders has {len(orders)} lists")
    rows = [Atoms.of_groups(parse_row(order, source, rank)) for rank, order in enumerate(orders)]
    placement = fields.whole_numbers("placement")
    return assemble(
        source,
        fields.text("name", "schedule"),
        rows,
        placement=placement,
        chains=fields.count("chains", default=1),
        microbatches=fields.count("microbatches"),
        slices=fields.count("slices", default=1),
        slicing=fields.one_of("slicing", _SLICINGS),
        update_every=fields.optional_count("update_every"),
        refuge=fields.refuge(len(orders)),
    )


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise MalformedFile(source, "", "is nested too deep to be a schedule") from None
    except json.JSONDecodeError as error:
        raise MalformedFile(source, f"line {error.lineno}", f"is not JSON: {error.msg}") from None
    except ValueError as error:  # a number of thousands of digits
        raise MalformedFile(source, "", f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise MalformedFile(source, "", f"expected an object with {', '.join(_KNOWN)}")
    return found


class _Fields:
    """Typed access to the fields of a document that anyone may have written."""

    def __init__(self, document: dict[str, Any], source: str) -> None:
        self.document, self.source = document, source

    def wrong(self, key: str, expected: str) -> MalformedFile:
        given = repr(self.document.get(key))
        shown = given if len(given) <= 40 else given[:40] + "…"
        return MalformedFile(self.source, f"field {key}", f"expected {expected}, found {shown}")

    def text(self, key: str, default: str) -> str:
        value = self.document.get(key, default)
        if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
            raise self.wrong(key, "a short text")
        return value

    def one_of(self, key: str, words: tuple[str, ...]) -> str:
        value = self.text(key, words[0])
        if value not in words:
            raise self.wrong(key, " or ".join(words))
        return value

    def count(self, key: str, *, default: int | None = None) -> int:
        value: Any = self.document.get(key, default)
        if not _is_whole(value) or not 1 <= value < 1 << 31:
            raise self.wrong(key, "a whole number of at least 1")
        return int(value)

    def optional_count(self, key: str) -> int | None:
        return None if self.document.get(key) is None else self.count(key)

    def whole_numbers(self, key: str) -> tuple[int, ...]:
        value = self.document.get(key)
        if not isinstance(value, list) or not value or not all(map(_is_whole, value)):
            raise self.wrong(key, "a list of whole numbers")
        return tuple(value)

    def refuge(self, ranks: int) -> tuple[int | None, ...]:
        value = self.document.get("refuge", [])
        fits = isinstance(value, list) and len(value) in (0, ranks)
        if not fits or not all(to is None or (_is_whole(to) and 0 <= to < ranks) for to in value):
            raise self.wrong("refuge", f"nothing, or for each of {ranks} ranks another rank or null")
        return tuple(value)

    def orders(self) -> list[list[str]]:
        value = self.document.get("orders")
        if not isinstance(value, list) or not value or not all(isinstance(order, list) for order in value):
            raise self.wrong("orders", "a list of actions for each rank")
        for rank, order in enumerate(value):
            odd = [repr(action) for action in order if not isinstance(action, str)]
            if odd:
                raise MalformedFile(self.source, f"rank {rank}", f'{odd[0]:.40} is not a text such as "2F0"')
        return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
