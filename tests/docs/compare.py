"""Whether output is what a page shows: words must be equal, numbers nearly; `…` stands for anything."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"(?<![\w.])[−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_MEASURED = re.compile(r"(?<![\w.])[−+-]?\d[\d,]*(?:\.\d+)?(?: ?(?:[nµum]?s|min|h|[kMGT]?i?B)\b)?")
_RULES = re.compile(r"[─━═\-]{3,}")
_ANYTHING = ("…", "...")


def differs(shown: list[str], printed: list[str], *, tolerance: float, numbers: bool = True) -> str | None:
    """The first shown line that the output does not have, and what stands there; None where it has all.

    tolerance: relative, of numbers; numbers=False: any number will do.
    """
    shown = [line for line in (_plain(one) for one in shown) if line]
    rest = [line for line in (_plain(one) for one in printed) if line]
    skipping = False
    for line in shown:
        if line in _ANYTHING:
            skipping = True
            continue
        while skipping and rest and not _same(line, rest[0], tolerance, numbers):
            rest.pop(0)
        if not rest or not _same(line, rest[0], tolerance, numbers):
            return f"shown:   {line}\nprinted: {rest[0] if rest else '(nothing more)'}"
        rest.pop(0)
        skipping = False
    if rest and not skipping:
        return f"shown:   (nothing more)\nprinted: {rest[0]}"
    return None


def _plain(line: str) -> str:
    """Without what depends on widths: runs of spaces, and rules under headings."""
    return " ".join(_RULES.sub(" ", line).split())


def _same(shown: str, printed: str, tolerance: float, numbers: bool) -> bool:
    if shown.endswith("…"):
        start = shown[:-1].rstrip()
        return _same(start, " ".join(printed.split()[: len(start.split())]), tolerance, numbers)
    if not numbers:
        return _MEASURED.sub("#", shown) == _MEASURED.sub("#", printed)
    if _NUMBER.sub("#", shown) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(printed), strict=True)
    return all(_near(one, other, tolerance) for one, other in pairs)


def _near(shown: str, printed: str, tolerance: float) -> bool:
    one, other = (float(text.replace("−", "-")) for text in (shown, printed))
    unit = 10.0 ** -len(shown.partition(".")[2]) if "." in shown and "e" not in shown.lower() else 0.0
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=unit)
