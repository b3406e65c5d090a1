"""Charts of the documentation: an interactive page and a small picture of each, made from the engine's timelines."""

from __future__ import annotations

import argparse
import hashlib
import shlex
from dataclasses import dataclass
from functools import cache
from html import escape

import numpy as np

from pipesim.costs.plain import parse_costs
from pipesim.engine.choose import simulate
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.metrics import Metrics, summarize
from pipesim.schedules.lookup import build
from pipesim.timeline import Timeline
from pipesim.viz.chart import chart
from pipesim.viz.look.palette import KIND_COLOURS
from pipesim.viz.page import SCRIPTS, asset, graph, hint, plotly_js

_HEIGHT = 46  # pixels of the hint below a chart
# In the site's own colours, light or dark as the reader chose there.
_FOLLOW = """
try {
  const outer = parent.document.body, name = "data-md-color-scheme";
  const follow = () => pipesim.setTheme(outer.getAttribute(name) === "slate" ? "dark" : "light");
  new MutationObserver(follow).observe(outer, { attributes: true, attributeFilter: [name] });
  follow();
} catch (error) { /* opened by itself */ }
"""


@dataclass(frozen=True)
class Drawing:
    """One chart. page: its file; height: pixels of the frame around it."""

    page: str
    html: str
    height: int
    picture: str


def simulated(arguments: str) -> tuple[Timeline, Metrics]:
    """What `pipesim simulate ARGUMENTS` shows, for the few options that charts of the documentation take."""
    parser = argparse.ArgumentParser("chart", exit_on_error=False)
    parser.add_argument("name")
    for short, word, kind in (("-p", "ranks", int), ("-m", "microbatches", int), ("-v", "virtual", int)):
        parser.add_argument(short, f"--{word}", type=kind)
    parser.add_argument("--slices", type=int)
    parser.add_argument("--costs", default="F=1,I=1,W=1")
    parser.add_argument("--comm", default="edge")
    given = parser.parse_args(shlex.split(arguments))
    options = {word: value for word in ("virtual", "slices") if (value := getattr(given, word)) is not None}
    schedule = build(given.name, ranks=given.ranks, microbatches=given.microbatches, **options)
    costs = parse_costs(given.costs).of(schedule)
    timeline = simulate(lower(schedule, comm=given.comm), costs)
    return timeline, summarize(timeline, costs)


@cache
def draw(arguments: str) -> Drawing:
    """The chart of `pipesim simulate ARGUMENTS`."""
    timeline, metrics = simulated(arguments)
    figure = chart(timeline, metrics)
    name = f"{timeline.name}-{hashlib.sha256(arguments.encode()).hexdigest()[:8]}"
    content = figure.to_plotly_json()
    html = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{escape(timeline.name)}</title><link rel='icon' href='data:,'>"
        "<link rel='stylesheet' href='page.css'><script src='pipesim.js'></script><script src='plotly.min.js'></script>"
        f"</head><body><main style='padding:0'>{graph('chart', content, zoom=False)}{hint(zoom=False)}</main>"
        f"<script>{_FOLLOW}</script></body></html>\n"
    )
    return Drawing(f"{name}.html", html, int(content["layout"]["height"]) + _HEIGHT, picture(timeline))


def shared_files() -> dict[str, str]:
    """What every chart's page loads, by name."""
    return {
        "page.css": asset("page.css"),
        "pipesim.js": "\n".join(asset(name) for name in SCRIPTS),
        "plotly.min.js": plotly_js(),
    }


def picture(timeline: Timeline, *, width: int = 480, row: int = 14) -> str:
    """An SVG of the compute boxes alone: a row a rank, colours by kind; a fused pair shares the height."""
    program, ops = timeline.program, timeline.program.ops
    scale = width / max(timeline.makespan_s, 1e-12)
    paths: dict[str, list[str]] = {}
    for op in np.flatnonzero(program.is_compute):
        start, end = timeline.start[op] * scale, timeline.end[op] * scale
        second = bool(ops.fused[op])
        half = second or (op + 1 < len(program) and bool(ops.fused[op + 1]))
        tall = row / 2 - 1 if half else row - 2
        top = int(program.rank[op]) * row + 1 + (tall if second else 0)
        left, wide = round(float(start), 2), max(round(float(end - start) - 0.6, 2), 0.3)
        paths.setdefault(KIND_COLOURS[Kind(int(ops.kind[op]))], []).append(f"M{left} {top}h{wide}v{tall}h-{wide}z")
    drawn = "".join(f'<path fill="{colour}" d="{"".join(d)}"/>' for colour, d in paths.items())
    height = timeline.ranks * row
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<rect width="{width}" height="{height}" fill="#888888" opacity="0.2"/>{drawn}</svg>\n'
    )
