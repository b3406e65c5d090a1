"""What a chart costs by number of boxes: `python benchmarks/charts/run.py [--quick]`; writes results.txt beside it.

For 1F1B of growing length: file size beyond plotly.js, CPU seconds to make figure and file, and in headless Chromium
(no GPU) the time to the first paint of the boxes, and of a step of zoom and of a pan. In the same run a straightforward
chart of the same boxes: plotly bars, a trace a kind, validated, written by plotly. Browser times are wall-clock, the
best of some tries, as other work may share the machine. Then the playground at 16 ranks and 128 microbatches: from a
changed control to the new chart.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from playwright.sync_api import Page, sync_playwright

from pipesim.cli.playground import make_server
from pipesim.costs.plain import parse_costs
from pipesim.engine.choose import simulate
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.metrics import summarize
from pipesim.schedules.catalogue import FAMILIES
from pipesim.timeline import Timeline
from pipesim.viz.chart import chart
from pipesim.viz.look.palette import KIND_COLOURS
from pipesim.viz.page import plotly_js, write_html

RESULTS = Path(__file__).with_name("results.txt")
COSTS = parse_costs("F=18ms,I=18ms,W=9ms,C=0.6ms,optimizer=5ms")
CASES = [(4, 8), (8, 64), (16, 320), (64, 782), (64, 1600)]
PLAIN_MOST = 110_000  # boxes that a browser survives as plotly bars
CHROMIUM = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]

_ZOOM = """async ([pan, tries]) => {
    const graph = document.querySelector('.js-plotly-plot'), until = graph.layout.xaxis.range[1];
    const times = [];
    for (let step = 0; step < tries; step++) {
        const width = until / Math.pow(1.5, pan ? 6 : step), start = until * (0.3 + 0.004 * step);
        const began = performance.now();
        await Plotly.relayout(graph, {'xaxis.range': [start, start + width]});
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
        times.push(performance.now() - began);
    }
    return times.sort((a, b) => a - b);
}"""


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one chart."""

    make_s: float
    file_bytes: int
    paint_s: float
    zoom_s: float
    pan_s: float


def made(ranks: int, microbatches: int) -> Timeline:
    schedule = FAMILIES["1f1b"].build(ranks=ranks, microbatches=microbatches)
    return simulate(lower(schedule), COSTS.of(schedule))


def ours(timeline: Timeline, path: Path) -> None:
    write_html(chart(timeline, summarize(timeline), picture=False), path)


def plain(timeline: Timeline, path: Path) -> None:
    """As one would do it at first."""
    figure = go.Figure()
    ops = timeline.program.ops
    for kind in (Kind.F, Kind.B):
        mine = ops.kind == kind
        figure.add_bar(
            orientation="h", name=kind.name, base=timeline.start[mine], x=(timeline.end - timeline.start)[mine],
            y=timeline.program.rank[mine], text=ops.microbatch[mine], marker_color=KIND_COLOURS[kind],
        )  # fmt: skip
    figure.update_layout(barmode="overlay")
    figure.update_yaxes(autorange="reversed")
    figure.write_html(path, include_plotlyjs=True, div_id="chart")


def best(work: Callable[[], Any], times: int = 3) -> float:
    """CPU seconds of the fastest try."""
    spent = []
    for _ in range(times):
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return min(spent)


def cost(write: Callable[[Timeline, Path], None], timeline: Timeline, page: Page, ready: str, tries: int = 12) -> Cost:
    """tries: steps of zoom; what takes minutes is done less often."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chart.html"
        seconds = best(lambda: write(timeline, path))
        painted = min(_paint(page, path, ready) for _ in range(max(1, tries // 4)))
        zoom, pan = (page.evaluate(_ZOOM, [way, tries])[tries // 4] / 1e3 for way in (False, True))
        return Cost(seconds, path.stat().st_size - len(plotly_js()), painted, zoom, pan)


def _paint(page: Page, path: Path, ready: str) -> float:
    """Seconds from opening the file until the boxes are on the screen."""
    page.goto("about:blank")
    begun = time.perf_counter()
    page.goto(path.as_uri(), timeout=300_000)
    page.wait_for_function(ready, timeout=300_000, polling=20)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")
    return time.perf_counter() - begun


def playground(page: Page) -> float:
    """Seconds from a changed control to the chart of 16 ranks and 128 microbatches: the best of some."""
    server = make_server("127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page.goto(f"http://127.0.0.1:{server.port}/?ranks=16&microbatches=120")
    page.wait_for_selector("#chart .js-plotly-plot[data-ready=yes]")
    spent = []
    for microbatches in range(121, 129):
        begun = time.perf_counter()
        page.locator("#microbatches").fill(str(microbatches))
        page.wait_for_function(
            "(count) => document.querySelector('.js-plotly-plot').pipesim?.scenes?.[0].panel.microbatches === count",
            arg=microbatches, polling=10,
        )  # fmt: skip
        spent.append(time.perf_counter() - begun)
    server.shutdown()
    return sorted(spent)[1]


def table(page: Page, cases: list[tuple[int, int]]) -> list[str]:
    lines = [f"{'chart':8} {'boxes':>8} {'make s':>8} {'file MB':>8} {'paint s':>8} {'zoom s':>8} {'pan s':>8}"]
    for ranks, microbatches in cases:
        timeline = made(ranks, microbatches)
        boxes = len(timeline.boxes)
        rows = {"pipesim": cost(ours, timeline, page, "document.getElementById('chart').dataset.ready === 'yes'")}
        if boxes <= PLAIN_MOST:
            drawn = "document.querySelectorAll('.bars .point').length > 0"
            rows["go.Bar"] = cost(plain, timeline, page, drawn, 12 if boxes < 5000 else 2)
        for name, one in rows.items():
            lines.append(
                f"{name:8} {boxes:8,} {one.make_s:8.2f} {one.file_bytes / 1e6:8.2f} {one.paint_s:8.2f} "
                f"{one.zoom_s:8.3f} {one.pan_s:8.3f}"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the small ones; nothing is written")
    quick = parser.parse_args().quick
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
        page = opened.new_page(viewport={"width": 1400, "height": 900})
        lines = [
            f"plotly {version('plotly')}, Chromium {opened.version}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores",
            *table(page, CASES[:2] if quick else CASES),
            f"playground, 16 x 128: {playground(page):.2f} s from a changed control to the new chart",
        ]
        opened.close()
    print(lines[-1])
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
