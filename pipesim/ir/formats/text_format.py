"""Orders as text: a line a rank, actions between spaces, `# key: value` lines for what they do not say."""

from __future__ import annotations

import re

from pipesim.ir.atoms import Atoms
from pipesim.ir.formats.parts import MalformedFile, assemble, parse_row
from pipesim.ir.schedule import Schedule

_NUMBERS = ("microbatches", "chains", "slices", "update_every")
_COMMENT = re.compile(r"#\s*(\w+)\s*:\s*(.*)")
_WITHOUT_STAGE = re.compile(r"[FBIWXL]\d")


def dumps(schedule: Schedule) -> str:
    """The orders, after the lines that make the text complete."""
    placement = schedule.placement
    head: dict[str, object] = {
        "name": schedule.name,
        "microbatches": schedule.microbatches,
        "placement": " ".join(map(str, placement.ranks_of_stages)),
    }
    if placement.chains > 1:
        head["chains"] = placement.chains
    if schedule.slices > 1:
        head |= {"slices": schedule.slices, "slicing": schedule.slicing}
    if schedule.update_every is not None:
        head["update_every"] = schedule.update_every
    if schedule.refuge:
        head["refuge"] = " ".join("host" if to is None else str(to) for to in schedule.refuge)
    lines = [f"# {key}: {value}" for key, value in head.items()]
    return "\n".join([*lines, *map(" ".join, schedule.orders)]) + "\n"


def loads(text: str, source: str = "schedule") -> Schedule:
    """Read orders; without `#` lines too, if each stage is on one rank. Raises MalformedFile.

    Where every action is written without its stage (`F0 F1 B0`), line r is stage r on rank r.
    """
    lines = [line.strip() for line in text.splitlines()]
    said = {found[1]: found[2] for line in lines if (found := _COMMENT.fullmatch(line))}
    orders = [line.split("#")[0].split() for line in lines if line and not line.startswith("#")]
    rows = []
    for rank, order in enumerate(orders):
        rows.append(Atoms.of_groups(parse_row([_staged(word, rank) for word in order], source, rank)))
    numbers = {key: _number(source, key, said[key]) for key in _NUMBERS if key in said}
    slicing = said.get("slicing", "causal")
    if slicing not in ("causal", "autoregressive"):
        raise MalformedFile(source, "slicing", f"expected causal or autoregressive, found {slicing!r:.40}")
    return assemble(
        source,
        said.get("name", "schedule")[:200],
        rows,
        placement=_placement(source, said.get("placement")),
        slicing=slicing,
        refuge=_refuge(source, said.get("refuge", ""), len(rows)),
        **numbers,
    )


def _staged(word: str, rank: int) -> str:
    return "&".join(f"{rank}{part}" if _WITHOUT_STAGE.match(part) else part for part in word.split("&"))


def _number(source: str, key: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < 1:
        raise MalformedFile(source, key, f"expected a whole number of at least 1, found {text!r:.40}")
    return int(text)


def _placement(source: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,9}( \d{1,9})*", text):
        raise MalformedFile(source, "placement", f"expected the rank of each stage, found {text!r:.40}")
    return tuple(map(int, text.split()))


def _refuge(source: str, text: str, ranks: int) -> tuple[int | None, ...]:
    words = text.split()
    fits = len(words) in (0, ranks) and all(
        word == "host" or (re.fullmatch(r"\d{1,9}", word) and int(word) < ranks) for word in words
    )
    if not fits:
        raise MalformedFile(source, "refuge", f"expected a rank or host for each of {ranks} ranks, found {text!r:.40}")
    return tuple(None if word == "host" else int(word) for word in words)
