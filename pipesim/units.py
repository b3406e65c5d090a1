"""Quantities as people write them: SI numbers inside, `18.5ms` and `60GB` outside.

A bare number is in the SI unit (seconds, bytes, bytes/s, FLOP/s). `GB` is 10⁹ bytes, `GiB` 2³⁰; `Gb` is bits.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pipesim.errors import PipesimError

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s\d](?:.*\S)?)?\s*", re.ASCII)

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

_SECONDS = {
    "s": 1.0,
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,  # micro sign
    "μs": 1e-6,  # the Greek letter, which keyboards give as often
    "ms": 1e-3,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BYTES = {f"{prefix}B": scale for prefix, scale in (_DECIMAL | _BINARY).items()}
_BYTES_PER_S = {f"{unit}/s": scale for unit, scale in _BYTES.items()} | {
    f"{prefix}{bit}": scale / 8 for prefix, scale in _DECIMAL.items() for bit in ("b/s", "bit/s", "bps")
}
_FLOPS = {f"{prefix}{flop}": scale for prefix, scale in _DECIMAL.items() for flop in ("FLOP/s", "FLOPS")}
_FRACTION = {"%": 0.01}


@dataclass(eq=False)
class BadQuantity(PipesimError):
    """A text that is not the quantity it should be."""

    name: str
    value: object
    reason: str
    example: str

    def __str__(self) -> str:
        return f"{self.name}={_short(self.value)}: {self.reason}, e.g. {self.example}"


def parse_seconds(value: str | float, *, name: str = "time", positive: bool = False, signed: bool = False) -> float:
    """`18.5ms`, `3us`, `2s`, `10min`, `50000h`, `1.2e-3` → seconds."""
    return _parse(value, _SECONDS, "18.5ms", name=name, positive=positive, signed=signed)


def parse_bytes(value: str | float, *, name: str = "size", positive: bool = False) -> float:
    """`60GB`, `4MiB`, `4096` → bytes."""
    return _parse(value, _BYTES, "60GB", name=name, positive=positive)


def parse_bytes_per_s(value: str | float, *, name: str = "bandwidth", positive: bool = False) -> float:
    """`50GB/s`, `400Gb/s`, `400Gbit/s`, `400Gbps` → bytes per second."""
    return _parse(value, _BYTES_PER_S, "50GB/s or 400Gb/s", name=name, positive=positive)


def parse_flops(value: str | float, *, name: str = "speed", positive: bool = False) -> float:
    """`989TFLOP/s`, `989TFLOPS`, `9.89e14` → floating-point operations per second."""
    return _parse(value, _FLOPS, "989TFLOP/s", name=name, positive=positive)


def parse_fraction(
    value: str | float, *, name: str = "fraction", positive: bool = False, signed: bool = False
) -> float:
    """`5%`, `0.05` → 0.05. More than 100 % is allowed: a device can be 150 % as slow."""
    return _parse(value, _FRACTION, "5% or 0.05", name=name, positive=positive, signed=signed)


def _parse(
    value: object,
    units: Mapping[str, float],
    example: str,
    *,
    name: str,
    positive: bool,
    signed: bool = False,
) -> float:
    def refuse(reason: str) -> BadQuantity:
        return BadQuantity(name, value, reason, example)

    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        if match is None:
            raise refuse("not a number, with or without a unit")
        number, unit = float(match[1]), match[2]
        if unit is not None and unit not in units:
            close = get_close_matches(unit[:20], units, n=3, cutoff=0.5)
            unknown = f"unknown unit {_short(unit)}"
            raise refuse(unknown + (f" (did you mean {', '.join(close)}?)" if close else ""))
        quantity = number * units[unit] if unit else number
    elif isinstance(value, int | float) and not isinstance(value, bool):
        quantity = _float(value)
    else:
        raise refuse("not a number, with or without a unit")
    if not math.isfinite(quantity):
        raise refuse("must be finite")
    if positive and quantity <= 0:
        raise refuse("must be more than 0")
    if quantity < 0 and not signed:
        raise refuse("must not be negative")
    return quantity


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 50 else shown[:46] + " ..."


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an int of more than 308 digits
        return math.inf


def format_seconds(seconds: float, *, digits: int = 4) -> str:
    """`18.52 ms`; from two minutes on `10 min`, `2.5 h`, `3.2 d`."""
    if abs(seconds) >= 120:
        return _scaled(seconds, {"min": 60.0, "h": 3600.0, "d": 86400.0}, digits, at_least=2)
    return _scaled(seconds, {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}, digits)


def format_bytes(size: float, *, digits: int = 4) -> str:
    """`60.3 GB`, decimal as on a GPU's label."""
    return _scaled(size, _steps("B"), digits)


def format_bytes_per_s(rate: float, *, digits: int = 4) -> str:
    """`450 GB/s`."""
    return _scaled(rate, _steps("B/s"), digits)


def format_flops(rate: float, *, digits: int = 4) -> str:
    """`412.3 TFLOP/s`."""
    return _scaled(rate, _steps("FLOP/s"), digits)


def format_fraction(fraction: float, *, digits: int = 3) -> str:
    """`4.35 %`."""
    return f"{_significant(100 * fraction, digits)} %"


def format_count(count: float, *, digits: int = 4) -> str:
    """`12,345` in full up to a million, then `70.55 G`."""
    if abs(count) < 1e6:
        return f"{count:,.0f}" if abs(count) >= 1000 or count == int(count) else _significant(count, digits)
    return _scaled(count, _steps(""), digits)


def _steps(unit: str) -> dict[str, float]:
    return {f"{prefix}{unit}": scale for prefix, scale in _DECIMAL.items() if prefix != "K"}


def _scaled(quantity: float, scales: Mapping[str, float], digits: int, *, at_least: float = 1) -> str:
    """In the largest unit of which the quantity, as rounded, makes `at_least`; zero in the SI unit."""
    if quantity == 0 or not math.isfinite(quantity):
        unit = next(unit for unit, scale in scales.items() if scale in (1, 60))
    else:
        rounded = float(f"{abs(quantity):.{digits - 1}e}") * (1 + 1e-12)
        fitting = [unit for unit, scale in scales.items() if rounded >= at_least * scale]
        unit = fitting[-1] if fitting else next(iter(scales))
    return f"{_significant(quantity / scales[unit], digits)} {unit}".rstrip()


def _significant(number: float, digits: int) -> str:
    """Rounded to so many digits, never in exponent form within what anyone prints, no zeros at the end."""
    if number == 0 or not math.isfinite(number):
        return f"{number + 0.0:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(number))))
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
