"""What a figure carries for the page beside plotly's own: the timelines, exactly, and how to draw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pipesim.idle import CAUSES
from pipesim.ir.lanes import LaneKind
from pipesim.viz.look.palette import (
    CAUSE_COLOURS,
    CAUSE_WORDS,
    FLOW_COLOURS,
    FLOW_WORDS,
    FONT,
    KIND_COLOURS,
    KIND_PATTERNS,
    KIND_WORDS,
    THEMES,
    ThemeName,
    lightest,
    rgba,
    shades,
)
from pipesim.viz.panels.bars import STRIP_BOTTOM, STRIP_TOP, Drawn, chunk_of_stage, compute_extent, lane_places
from pipesim.viz.panels.payload import packed

VERSION = 1


def panel_meta(drawn: Drawn, axes: tuple[str, str]) -> dict[str, Any]:
    """One timeline and where it is drawn. Heights are parts of a row, counted down from its middle."""
    timeline = drawn.timeline
    schedule = timeline.program.schedule
    chunk = chunk_of_stage(timeline)
    place, most = lane_places(timeline)
    in_compute = timeline.lanes.kind == LaneKind.COMPUTE
    return {
        "axes": list(axes),
        "name": timeline.name,
        "source": timeline.source,
        "ranks": timeline.ranks,
        "microbatches": schedule.microbatches,
        "slices": schedule.slices,
        "chunk": chunk.tolist(),
        "chunks": int(chunk.max()) + 1,
        "lightest": lightest(int(chunk.max()) + 1),
        "extent": list(compute_extent(timeline)),
        "strip": [STRIP_TOP, STRIP_BOTTOM],
        "lanes": np.where(in_compute, -1, place).astype(int).tolist(),
        "mostLanes": most,
        "timeline": packed(timeline, drawn.idle, drawn.critical),
    }


def figure_meta(
    panels: Sequence[dict[str, Any]], *, painted: bool, theme: ThemeName = "light", **more: Any
) -> dict[str, Any]:
    """The value of a figure's `layout.meta`. painted: the page paints the boxes, plotly does not."""
    return {
        "pipesim": {
            "version": VERSION,
            "painted": painted,
            "theme": theme,
            "palette": _palette(),
            "themes": {name: asdict(theme) for name, theme in THEMES.items()},
            "panels": list(panels),
            **more,
        }
    }


def _palette() -> dict[str, Any]:
    return {
        "font": FONT,
        "kinds": {
            int(kind): {
                "name": KIND_WORDS[kind],
                "pattern": KIND_PATTERNS.get(kind, ""),
                "shades": [rgba(shade).tolist() for shade in shades(KIND_COLOURS.get(kind, "#888888"))],
            }
            for kind in KIND_WORDS
        },
        "flows": {
            int(flow): {"name": FLOW_WORDS[flow], "rgba": rgba(colour).tolist()}
            for flow, colour in FLOW_COLOURS.items()
        },
        "causes": [{"name": CAUSE_WORDS[cause], "rgba": rgba(CAUSE_COLOURS[cause]).tolist()} for cause in CAUSES],
    }
