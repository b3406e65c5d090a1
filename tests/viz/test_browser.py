"""Charts in a real browser: every box is there, says what it should, and reacts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipesim.metrics import summarize
from pipesim.timeline import Timeline
from pipesim.viz.chart import chart
from pipesim.viz.comparison import comparison
from pipesim.viz.page import plotly_js, write_html
from pipesim.viz.panels.bars import shown_idle
from tests.viz.browser import Sheet, browser
from tests.viz.cases import timeline

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture
def sheet(chromium: Any) -> Iterator[Sheet]:
    sheet = Sheet(chromium)
    yield sheet
    complaints = sheet.complaints
    sheet.page.close()
    assert complaints == []


def show(sheet: Sheet, made: Timeline, folder: Path) -> None:
    write_html(chart(made, summarize(made)), folder / "chart.html")
    sheet.show(folder / "chart.html")


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "dualpipe"])
def test_every_box_of_a_small_schedule_is_there_with_its_number(sheet: Sheet, tmp_path: Path, name: str) -> None:
    made = timeline(name, 4, 8)
    show(sheet, made, tmp_path)
    program = made.program
    boxes = np.flatnonzero(program.is_compute)
    found = sheet.page.eval_on_selector_all(".bars .point text", "all => all.map((one) => one.textContent)")
    assert sorted(found) == sorted(str(number) for number in program.ops.microbatch[boxes].tolist())
    sheet.picture(f"small-{name}")


def test_hover_says_what_a_box_is_and_waited_for(sheet: Sheet, tmp_path: Path) -> None:
    made = timeline("1f1b", 4, 8)
    show(sheet, made, tmp_path)
    op = next(op for op in made.boxes.tolist() if made.label(op) == "0B0")
    sheet.page.mouse.move(*sheet.place(op))
    text = sheet.page.locator(".hoverlayer .hovertext").text_content()
    assert text.startswith("0B0 backward")
    assert "before: 62.5 ms waits for producer" in text


@pytest.mark.parametrize("name", ["1f1b", "hanayo", "dualpipe"])
def test_every_box_of_a_long_step_is_painted_and_says_what_it_is(sheet: Sheet, tmp_path: Path, name: str) -> None:
    made = timeline(name, 8, 64)
    show(sheet, made, tmp_path)
    random = np.random.default_rng(0)
    for op in random.choice(np.flatnonzero(made.program.is_compute), 12, replace=False).tolist():
        middle, half = (made.start[op] + made.end[op]) / 2, (made.end[op] - made.start[op]) * 8
        sheet.run("await Plotly.relayout(graph, {'xaxis.range': [args[0], args[1]]});", middle - half, middle + half)
        sheet.settle()
        x, y = sheet.place(op)
        sheet.page.mouse.move(x, y)
        assert sheet.page.locator(".pipesim-tip").inner_text().startswith(made.program.text(op) + " ")
        assert sheet.pixel(x - 12, y)[3] == 255
    sheet.picture(f"zoomed-{name}")


def test_wheel_and_drag_move_what_is_painted(sheet: Sheet, tmp_path: Path) -> None:
    made = timeline("1f1b", 8, 64)
    show(sheet, made, tmp_path)
    before = sheet.run("return overlay.frames")
    x, y = sheet.place(int(made.boxes[40]))
    sheet.page.mouse.move(x, y)
    sheet.page.mouse.wheel(0, -400)
    sheet.page.wait_for_function("document.querySelector('.js-plotly-plot').layout.xaxis.range[0] > 0")
    low, high = sheet.run("return graph.layout.xaxis.range")
    assert high - low < made.step_time_s * 0.99
    sheet.page.mouse.down()
    sheet.page.mouse.move(x - 100, y, steps=4)
    sheet.page.mouse.up()
    sheet.settle()
    assert sheet.run("return graph.layout.xaxis.range[0]") > low
    assert sheet.run("return overlay.frames") >= before + 3
    sheet.page.get_by_role("button", name="Whole step").click()
    sheet.settle()
    assert sheet.run("return graph.layout.xaxis.range[0]") == 0


@pytest.mark.parametrize("microbatches", [8, 64])
def test_a_click_shows_what_a_box_waits_for(sheet: Sheet, tmp_path: Path, microbatches: int) -> None:
    made = timeline("1f1b", 4, microbatches)
    show(sheet, made, tmp_path)
    op = next(op for op in made.boxes.tolist() if made.label(op) == "1B0")
    x, y = sheet.place(op)
    sheet.page.mouse.click(x, y)
    sheet.settle()
    assert sheet.run("return overlay.selected") == {"panel": 0, "op": op}
    arrows = sheet.run("return pipesim.arrows(overlay.scenes[0], args[0])", op)
    texts = {(made.program.text(one), made.program.text(other)) for one, other in arrows}
    assert texts == {("2B0", "1B0"), ("1B0", "0B0")}
    sheet.picture(f"arrows-{microbatches}")
    sheet.page.keyboard.press("Escape")
    assert sheet.run("return overlay.selected") is None


@pytest.mark.parametrize("microbatches", [8, 64])
def test_the_legend_hides_a_kind(sheet: Sheet, tmp_path: Path, microbatches: int) -> None:
    made = timeline("1f1b", 4, microbatches)
    show(sheet, made, tmp_path)
    op = int(made.boxes[0])
    sheet.run("await Plotly.relayout(graph, {'xaxis.range': [0, 0.2]});")
    sheet.settle()
    x, y = sheet.place(op)
    shown = "graph.querySelectorAll('.bars .point text').length"
    before = sheet.run(f"return {shown}"), sheet.pixel(x - 9, y)[3]
    sheet.page.locator(".legendtoggle").first.click()
    sheet.page.wait_for_function("document.querySelector('.js-plotly-plot').data[0].visible === 'legendonly'")
    sheet.settle()
    after = sheet.run(f"return {shown}"), sheet.pixel(x - 9, y)[3]
    assert after != before


@pytest.mark.parametrize("microbatches", [8, 64])
def test_dark_mode_and_shades(sheet: Sheet, tmp_path: Path, microbatches: int) -> None:
    made = timeline("interleaved", 4, microbatches)
    show(sheet, made, tmp_path)
    sheet.page.get_by_role("button", name="Light / dark").click()
    sheet.settle()
    assert sheet.run("return graph.layout.paper_bgcolor") == "#11161d"
    sheet.picture(f"dark-{microbatches}")
    sheet.page.reload()
    sheet.page.wait_for_function("document.getElementById('chart').dataset.ready === 'yes'")
    assert sheet.run("return graph.layout.paper_bgcolor") == "#11161d"
    sheet.page.get_by_role("button", name="by microbatch").click()
    sheet.settle()
    styles = sheet.run("return overlay.scenes[0].strips.flatMap((strip) => Array.from(strip.style))")
    assert len(set(styles)) > 14


def test_a_comparison(sheet: Sheet, tmp_path: Path) -> None:
    made = [timeline(name, 4, 16) for name in ("gpipe", "1f1b", "interleaved")]
    write_html(comparison(made), tmp_path / "chart.html")
    sheet.show(tmp_path / "chart.html")
    assert sheet.page.locator("td.best").count() >= 4
    for panel, one in enumerate(made):
        op = int(one.boxes[-1])
        sheet.page.mouse.move(*sheet.place(op, panel))
        assert sheet.page.locator(".pipesim-tip").inner_text().startswith(one.program.text(op) + " ")
    sheet.picture("comparison")


def test_the_page_reads_the_numbers_bit_for_bit(sheet: Sheet, tmp_path: Path) -> None:
    made = timeline("interleaved", 4, 32, jitter=0.1)
    show(sheet, made, tmp_path)
    for name, expected in {"start": made.start, "end": made.end, "need": made.program.need}.items():
        found = sheet.run("return Array.from(overlay.scenes[0].columns[args[0]])", name)
        np.testing.assert_array_equal(expected, found)
    spans = shown_idle(made)
    np.testing.assert_array_equal(spans.begin, sheet.run("return Array.from(overlay.scenes[0].columns.idle_start)"))
    np.testing.assert_array_equal(spans.end, sheet.run("return Array.from(overlay.scenes[0].columns.idle_end)"))


def test_of_100_000_boxes_each_can_be_reached(sheet: Sheet, tmp_path: Path) -> None:
    made = timeline("1f1b", 32, 1563)
    assert len(made.boxes) > 100_000
    show(sheet, made, tmp_path)
    assert (tmp_path / "chart.html").stat().st_size - len(plotly_js()) < 3_000_000
    for op in np.random.default_rng(2).choice(made.boxes, 5, replace=False).tolist():
        middle = (made.start[op] + made.end[op]) / 2
        sheet.run("await Plotly.relayout(graph, {'xaxis.range': [args[0] - 0.3, args[0] + 0.3]});", middle)
        sheet.settle()
        sheet.page.mouse.move(*sheet.place(op))
        assert sheet.page.locator(".pipesim-tip").inner_text().startswith(made.program.text(op) + " ")
    sheet.picture("long")


@pytest.mark.parametrize("microbatches", [8, 64])
def test_a_picture_is_saved_with_what_is_painted(sheet: Sheet, tmp_path: Path, microbatches: int) -> None:
    show(sheet, timeline("1f1b", 4, microbatches), tmp_path)
    with sheet.page.expect_download() as download:
        sheet.page.get_by_role("button", name="Save picture").click()
    assert download.value.suggested_filename == "1f1b.png"
    assert download.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["<b onclick=alert(1)>x</b>", "🚀" * 100, "w" * 200, "\"'&;</script>"])
def test_any_name_is_shown_as_it_is(sheet: Sheet, tmp_path: Path, name: str) -> None:
    from dataclasses import replace

    made = timeline("1f1b", 2, 2)
    show(sheet, replace(made, program=replace(made.program, schedule=made.program.schedule.renamed(name))), tmp_path)
    assert sheet.page.locator("h1").inner_text() == name
    assert sheet.run("return document.documentElement.scrollWidth") <= 1400
