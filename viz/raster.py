"""A picture of a step with too many boxes for plotly: each pixel the mixture of what it covers.

For a figure outside our page (a notebook, an image); the page paints every box itself.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from pipesim.idle import CAUSES
from pipesim.ir.action import Kind
from pipesim.viz.bars import Bars, Drawn, chunk_of_stage, compute_bars
from pipesim.viz.palette import CAUSE_COLOURS, KIND_COLOURS, rgb, rgba, shade_of_chunk, shades

WIDTH = 2000  # pixels of the whole step
_ROW = 12  # pixels of a rank

Floats = NDArray[np.float64]


def raster(drawn: Drawn) -> str:
    """The boxes and idle spans of a timeline as the address (data:) of a PNG, rank 0 on top."""
    timeline = drawn.timeline
    bars = compute_bars(timeline)
    ops, chunk = timeline.program.ops, chunk_of_stage(timeline)
    by_chunk = shade_of_chunk(int(chunk.max()) + 1)
    shade = np.where(ops.kind <= Kind.W, by_chunk[chunk[ops.stage]], 0)[bars.op]
    colour = ops.kind[bars.op].astype(np.int64) * 100 + shade
    edges = np.linspace(0.0, timeline.step_time_s or 1.0, WIDTH + 1)
    lines = np.zeros((timeline.ranks, WIDTH, 4))
    low, high = (round((float(edge) + 0.5) * _ROW) for edge in (bars.low.min(), bars.high.max()))
    for rank, line in enumerate(lines):
        mine = drawn.idle.rank == rank
        for code, cause in enumerate(CAUSES):
            one = mine & (drawn.idle.cause == code)
            _mix(line, edges, drawn.idle.begin[one], drawn.idle.end[one], rgba(CAUSE_COLOURS[cause]))
        _mix_boxes(line, edges, bars.take(bars.rank == rank), colour[bars.rank == rank])
    image = np.zeros((timeline.ranks, _ROW, WIDTH, 4), np.uint8)
    image[:, low:high] = _bytes(lines)[:, None]
    return _png(image.reshape(-1, WIDTH, 4))


def _mix_boxes(line: Floats, edges: Floats, bars: Bars, colour: NDArray[np.integer]) -> None:
    """The two halves of a fused pair count half each."""
    height = (bars.high - bars.low) / (bars.high - bars.low).max(initial=1e-9)
    for one in np.unique(colour).tolist():
        mine = colour == one
        shown = rgb(shades(KIND_COLOURS[Kind(one // 100)])[one % 100])
        share = float(height[mine].mean())
        _mix(line, edges, bars.start[mine], bars.end[mine], np.append(shown, share))


def _mix(line: Floats, edges: Floats, start: Floats, end: Floats, colour: Floats) -> None:
    """Add a colour to each pixel by the part of it that the spans cover."""
    if not len(start):
        return
    order = np.argsort(start, kind="stable")
    times = np.stack([start[order], end[order]], 1).ravel()
    covered = np.stack([np.zeros(len(order)), end[order] - start[order]], 1).ravel().cumsum()
    part = np.diff(np.interp(edges, times, covered)) / np.diff(edges) * colour[3]
    line[:, :3] += part[:, None] * colour[:3]
    line[:, 3] += part


def _bytes(image: Floats) -> NDArray[np.uint8]:
    alpha = np.clip(image[..., 3:], 0.0, 1.0)
    colour = np.divide(image[..., :3], image[..., 3:], out=np.zeros_like(image[..., :3]), where=image[..., 3:] > 0)
    whole: NDArray[np.uint8] = np.rint(np.concatenate([colour, alpha * 255], -1)).clip(0, 255).astype(np.uint8)
    return whole


def _png(image: NDArray[np.uint8]) -> str:
    """RGBA rows as a PNG. Rows are stored as differences from the one above: most are the same."""
    above = np.concatenate([np.zeros_like(image[:1]), image[:-1]])
    rows = (image - above).reshape(len(image), -1)
    lines = np.concatenate([np.full((len(rows), 1), 2, np.uint8), rows], 1)
    head = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 6, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()
