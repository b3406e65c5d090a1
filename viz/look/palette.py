"""Colours and patterns: one place for all charts, chosen to be told apart by colour-blind eyes and in grey."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow

ThemeName = Literal["light", "dark"]


FONT = "Inter, 'Segoe UI', system-ui, -apple-system, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Theme:
    """Colours of paper, ink and lines; boxes have the same colours on both."""

    paper: str
    panel: str
    ink: str
    faint: str
    grid: str
    limit: str
    critical: str


THEMES: dict[ThemeName, Theme] = {
    "light": Theme("#ffffff", "#f6f7f9", "#1d2733", "#5d6875", "#e3e7ec", "#c62f2f", "#b0113a"),
    "dark": Theme("#11161d", "#171e27", "#e6ebf1", "#97a3b1", "#27313d", "#ff7070", "#ff5c8a"),
}

# Hue and lightness both differ; the pattern carries the kind where colour does not (print, colour blindness).
KIND_COLOURS: dict[Kind, str] = {
    Kind.F: "#3672b9",
    Kind.B: "#e8a33d",
    Kind.I: "#d9653b",
    Kind.W: "#4aa277",
    Kind.STEP: "#8667b5",
    Kind.REDUCE: "#b0588f",
    Kind.X: "#7d8894",
    Kind.L: "#55606c",
}
KIND_PATTERNS: dict[Kind, str] = {Kind.F: "", Kind.B: "/", Kind.I: "\\", Kind.W: ".", Kind.STEP: "x"}
KIND_WORDS: dict[Kind, str] = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
    Kind.X: "activation out",
    Kind.L: "activation in",
    Kind.SEND: "send",
    Kind.RECV: "receive",
    Kind.REDUCE: "gradient reduction",
    Kind.STEP: "optimizer step",
}
FLOW_COLOURS: dict[Flow, str] = {
    Flow.ACTIVATION: "#6aa5d9",
    Flow.GRADIENT: "#e58f6d",
    Flow.TOKEN: "#9a86c9",
    Flow.MOVE: "#7d8894",
}
FLOW_WORDS: dict[Flow, str] = {
    Flow.ACTIVATION: "activations",
    Flow.GRADIENT: "gradients",
    Flow.TOKEN: "tokens",
    Flow.MOVE: "moved activations",
}
CAUSE_COLOURS: dict[str, str] = {  # transparent, so that they are right on light and dark paper
    "warm_up": "rgba(130,142,156,0.22)",
    "cool_down": "rgba(130,142,156,0.36)",
    "producer": "rgba(214,62,77,0.24)",
    "message": "rgba(126,87,214,0.36)",
    "send": "rgba(33,150,166,0.38)",
    "gradient_sync": "rgba(176,88,143,0.30)",
    "optimizer": "rgba(134,103,181,0.30)",
}
CAUSE_WORDS: dict[str, str] = {
    "warm_up": "warm-up",
    "cool_down": "cool-down",
    "producer": "waits for producer",
    "message": "waits for message",
    "send": "blocked in send",
    "gradient_sync": "gradient sync",
    "optimizer": "optimizer",
}
RANK_COLOURS = ("#3672b9", "#d9653b", "#4aa277", "#8667b5", "#c08a1e", "#b0588f", "#2f8f9d", "#7a6a58")

MEMORY_COLOURS: dict[str, str] = {
    "weights": "#3672b9",
    "gradients": "#d9653b",
    "optimizer state": "#8667b5",
    "overhead": "#7d8894",
    "activations and buffers": "#e8a33d",
}
PART_COLOURS: dict[str, str] = {
    "matmul": "#3672b9",
    "attention": "#4aa277",
    "memory": "#e8a33d",
    "recompute": "#c08a1e",
    "tensor": "#b0588f",
    "context": "#8667b5",
    "expert": "#d9653b",
    "data": "#2f8f9d",
    "vocabulary": "#7a6a58",
    "host": "#7d8894",
}

# Early (blue) over as planned (grey) to late (red), readable for colour-blind eyes.
DIVERGING: tuple[tuple[int, int, int], ...] = (
    (26, 82, 158), (74, 128, 191), (137, 176, 214), (199, 215, 229), (226, 228, 231),
    (240, 206, 191), (229, 152, 120), (207, 92, 63), (160, 30, 34),
)  # fmt: skip

SHADES = 13
_LIGHTEST = 0.6  # how far the last shade goes towards white


def rgb(colour: str) -> NDArray[np.float64]:
    """`#3672b9` → its three numbers, 0 … 255."""
    return np.asarray([int(colour[at : at + 2], 16) for at in (1, 3, 5)], np.float64)


def rgba(colour: str) -> NDArray[np.float64]:
    """`#rrggbb` or `rgba(r,g,b,a)` → its four numbers, alpha 0 … 1."""
    if colour.startswith("#"):
        return np.append(rgb(colour), 1.0)
    return np.asarray([float(part) for part in colour[5:-1].split(",")])


@cache
def shades(colour: str) -> tuple[str, ...]:
    """The colour, then steps of it towards white: `SHADES` in all."""
    base, white = rgb(colour), np.full(3, 255.0)
    return tuple(_hex(base + (white - base) * step) for step in np.linspace(0.0, _LIGHTEST, SHADES))


def shade_of_chunk(chunks: int) -> NDArray[np.int64]:
    """Shade of each chunk of a rank: as far apart as they can be, two of them half as far."""
    part = np.arange(chunks) / max(1, chunks - 1) * lightest(chunks)
    return np.rint(part * (SHADES - 1)).astype(np.int64)


def lightest(chunks: int) -> float:
    """Part of the way to the last shade that the last chunk goes."""
    return 0.6 if chunks <= 2 else 1.0


def ink_on(colour: str) -> str:
    """Black or white, whichever can be read on this colour (WCAG relative luminance)."""
    part = rgb(colour) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return "#ffffff" if float(linear @ (0.2126, 0.7152, 0.0722)) < 0.32 else "#14202c"


def _hex(colour: NDArray[np.float64]) -> str:
    return "#" + "".join(f"{round(part):02x}" for part in colour)
