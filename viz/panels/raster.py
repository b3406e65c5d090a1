"""A picture of a step with too many boxes for plotly: each pixel the mixture of what it covers.

For a figure outside our page (a notebook, an image); the page paints every box itself.
"""

from __future__ import annotations

import base64
import struct
import zlib
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipesim.idle import CAUSES
from pipesim.ir.action import Kind
from pipesim.viz.look.palette import CAUSE_COLOURS, KIND_COLOURS, rgba, shade_of_chunk, shades
from pipesim.viz.panels.bars import Bars, Drawn, chunk_of_stage, compute_bars

WIDTH = 4000  # pixels of the whole step
_HEIGHT, _LEAST_ROW, _MOST_ROW = 1200, 8, 60  # pixels of all ranks and of one
_EDGED = 8  # pixels from which a box has an edge

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
    row = min(max(_HEIGHT // timeline.ranks, _LEAST_ROW), _MOST_ROW)
    image = np.zeros((timeline.ranks, row, WIDTH, 4), np.uint8)
    low, high = (float(edge) for edge in (bars.low.min(), bars.high.max()))
    cuts = (low, (low + high) / 2, high) if ops.fused.any() else (low, high)  # a fused pair has a half each
    for rank in range(timeline.ranks):
        idle = np.zeros((WIDTH, 4))
        for code, cause in enumerate(CAUSES):
            one = (drawn.idle.rank == rank) & (drawn.idle.cause == code)
            _mix(idle, edges, drawn.idle.begin[one], drawn.idle.end[one], rgba(CAUSE_COLOURS[cause]))
        for top, bottom in pairwise(cuts):
            line = idle.copy()
            mine = (bars.rank == rank) & (bars.low <= top) & (bars.high >= bottom)
            _mix_boxes(line, edges, bars.take(mine), colour[mine])
            first, last = (round((edge + 0.5) * row) for edge in (top, bottom))
            image[rank, first:last] = _bytes(line)
    return _png(image.reshape(-1, WIDTH, 4))


def _mix_boxes(line: Floats, edges: Floats, bars: Bars, colour: NDArray[np.integer]) -> None:
    for one in np.unique(colour).tolist():
        mine = colour == one
        shown = rgba(shades(KIND_COLOURS[Kind(one // 100)])[one % 100])
        _mix(line, edges, bars.start[mine], bars.end[mine], shown)
    step = edges[1] - edges[0]
    wide = bars.end - bars.start >= _EDGED * step
    at = np.minimum((bars.start[wide] / step).astype(np.int64), len(line) - 1)
    line[at, :3] = 0.5 * line[at, :3] + 0.5 * 255 * line[at, 3:]


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
