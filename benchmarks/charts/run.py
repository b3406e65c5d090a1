"""What a chart costs by number of boxes: `python benchmarks/charts/run.py [--quick]`; writes results.txt beside it.

For 1F1B of growing length: file size beyond plotly.js, CPU seconds to make figure and file, and in headless Chromium
(no GPU) the time until the boxes are on the screen, and of a step of zoom and of a pan. In the same run a plain chart
of the same boxes: plotly bars, a trace a kind, validated, written by plotly. Browser times are given twice: by the
clock, the best of some tries, which on a shared machine is too high, and as CPU time of the page's main thread. Then
the playground at 16 ranks and 128 microbatches: from a changed control to the new chart.
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
from playwright.sync_api import Page, TimeoutError, sync_playwright

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

_MOST_S = 120

_STEP = """async ([share, shift]) => {
    const graph = document.querySelector('.js-plotly-plot');
    window.whole = window.whole || graph.layout.xaxis.range[1];
    const width = window.whole * share, start = window.whole * (0.3 + shift);
    const began = performance.now();
    await Plotly.relayout(graph, {'xaxis.range': [start, start + width]});
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    return (performance.now() - began) / 1e3;
}"""


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one chart; in the browser (by the clock, of the main thread's CPU)."""

    make_s: float
    file_bytes: int
    paint_s: tuple[float, float]
    zoom_s: tuple[float, float]
    pan_s: tuple[float, float]

    def row(self, name: str, boxes: int) -> str:
        times = " ".join(f"{clock:9.3f} {thread:7.3f}" for clock, thread in (self.paint_s, self.zoom_s, self.pan_s))
        return f"{name:8} {boxes:8,} {self.make_s:7.2f} {self.file_bytes / 1e6:8.2f} {times}"


HEAD = f"{'chart':8} {'boxes':>8} {'make s':>7} {'file MB':>8}" + "".join(
    f" {what + ' s':>9} {'CPU s':>7}" for what in ("paint", "zoom", "pan")
)


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


def best_s(work: Callable[[], Any], times: int = 3) -> float:
    """CPU seconds of the fastest try."""
    spent = []
    for _ in range(times):
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return min(spent)


class Clock:
    """Wall-clock and the main thread's CPU time of a page."""

    def __init__(self, page: Page) -> None:
        self.page, self.session = page, page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def thread_s(self) -> float:
        found = self.session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))

    def of(self, work: Callable[[], Any]) -> tuple[float, float]:
        began, thread = time.perf_counter(), self.thread_s()
        clock = work()
        return (clock if isinstance(clock, float) else time.perf_counter() - began, self.thread_s() - thread)


def cost(
    write: Callable[[Timeline, Path], None], timeline: Timeline, clock: Clock, ready: str, tries: int = 12
) -> Cost:
    """tries: steps of zoom; what takes minutes is done less often."""
    page = clock.page
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chart.html"
        seconds = best_s(lambda: write(timeline, path))
        painted = [_painted(clock, path, ready) for _ in range(max(1, tries // 4))]
        zoom = [clock.of(lambda at=at: page.evaluate(_STEP, [1.5**-at, 0.0])) for at in range(tries)]
        pan = [clock.of(lambda at=at: page.evaluate(_STEP, [0.1, 0.004 * at])) for at in range(tries)]
        size = path.stat().st_size - len(plotly_js())
    return Cost(seconds, size, _least(painted), _least(zoom), _least(pan))


def _least(found: list[tuple[float, float]]) -> tuple[float, float]:
    """The middle of the CPU times, and the lower quartile of the clock's: a busy machine only makes those longer."""
    clock, thread = (sorted(one) for one in zip(*found, strict=True))
    return (clock[len(clock) // 4], thread[len(thread) // 2])


def _painted(clock: Clock, path: Path, ready: str) -> tuple[float, float]:
    """From opening the file until the boxes are on the screen."""
    clock.page.goto("about:blank")
    return clock.of(lambda: _open(clock.page, path, ready))


def _open(page: Page, path: Path, ready: str) -> None:
    page.goto(path.as_uri(), timeout=_MOST_S * 1000)
    page.wait_for_function(ready, timeout=_MOST_S * 1000, polling=20)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")


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


def rows(clock: Clock, cases: list[tuple[int, int]]) -> list[str]:
    lines = [HEAD]
    for ranks, microbatches in cases:
        timeline = made(ranks, microbatches)
        boxes = len(timeline.boxes)
        ready = "document.getElementById('chart').dataset.ready === 'yes'"
        lines.append(cost(ours, timeline, clock, ready).row("pipesim", boxes))
        print(lines[-1], flush=True)
        if boxes <= PLAIN_MOST:
            lines.append(_plain_row(timeline, clock, boxes))
            print(lines[-1], flush=True)
    return lines


def _plain_row(timeline: Timeline, clock: Clock, boxes: int) -> str:
    drawn = "document.querySelectorAll('.bars .point').length > 0"
    try:
        return cost(plain, timeline, clock, drawn, 12 if boxes < 5000 else 2).row("go.Bar", boxes)
    except TimeoutError:
        return f"{'go.Bar':8} {boxes:8,} not on the screen after {_MOST_S} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the small ones; nothing is written")
    quick = parser.parse_args().quick
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
        page = opened.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(_MOST_S * 1000)
        lines = [
            f"plotly {version('plotly')}, Chromium {opened.version}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.0f}",
            *rows(Clock(page), CASES[:2] if quick else CASES),
            f"playground, 16 x 128: {playground(opened.new_page()):.2f} s from a changed control to the new chart",
        ]
        opened.close()
    print(lines[-1])
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
