"""Images by the ending of a name, and clear words where none can be made."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipesim.metrics import summarize
from pipesim.timeline import Timeline
from pipesim.viz.chart import chart
from pipesim.viz.images import CannotDraw, _few_patterns, write_image
from pipesim.viz.output import drawing_for, write_figure
from tests.viz.browser import chromium
from tests.viz.cases import timeline


def test_html_and_json_need_no_browser(tmp_path: Path) -> None:
    made = timeline("1f1b", 2, 2)
    figure = chart(made, summarize(made))
    write_figure(figure, tmp_path / "a.html")
    write_figure(figure, tmp_path / "a.json")
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert set(json.loads((tmp_path / "a.json").read_text())) >= {"data", "layout"}


def test_an_image_draws_every_box_and_a_page_needs_no_picture() -> None:
    made = timeline("1f1b", 8, 64)
    figures = {name: chart(made, summarize(made), **drawing_for(name)) for name in ("a.svg", "a.html", "a.json")}
    assert sum(len(trace["x"]) for trace in figures["a.svg"].data if trace["meta"] == "compute") == 1024 + 8
    assert not figures["a.html"].layout["images"]
    assert len(figures["a.json"].layout["images"]) == 1


def test_without_kaleido_or_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = timeline("1f1b", 2, 2)
    figure = chart(made, summarize(made))
    with pytest.raises(CannotDraw, match="images are png, svg, pdf; give a name such as chart"):
        write_image(figure, tmp_path / "a.bmp")
    monkeypatch.setattr("pipesim.viz.images.shutil.which", lambda name: None)
    monkeypatch.setattr("choreographer.browsers.chromium.Chromium.find_browser", lambda **_: None)
    with pytest.raises(CannotDraw, match="no Chromium or Chrome found; install one"):
        write_image(figure, tmp_path / "a.png")
    monkeypatch.setattr("pipesim.viz.images.find_spec", lambda name: None)
    with pytest.raises(CannotDraw, match="pip install 'pipesim\\[images\\]'"):
        write_image(figure, tmp_path / "a.png")


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium")
def test_a_browser_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = timeline("1f1b", 2, 2)
    monkeypatch.setattr("pipesim.viz.images._browser", lambda path: "/bin/false")
    with pytest.raises(CannotDraw, match="the browser /bin/false failed"):
        write_image(chart(made, summarize(made)), tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize(("ending", "head"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_images(tmp_path: Path, ending: str, head: bytes) -> None:
    made = timeline("1f1b", 4, 8, memory=True)
    write_figure(chart(made, summarize(made)), tmp_path / f"a.{ending}")
    data = (tmp_path / f"a.{ending}").read_bytes()
    assert data.startswith(head)
    assert len(data) > 10_000
    if ending == "svg":
        assert b"rank 3" in data


def test_a_pdf_of_many_boxes_has_no_patterns() -> None:
    few, many = (content_of(timeline("1f1b", 4, count)) for count in (8, 32))
    assert _few_patterns(few) == few
    assert {trace["marker"]["pattern"]["shape"] for trace in _few_patterns(many) if trace["type"] == "bar"} == {""}


def content_of(made: Timeline) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = chart(made, summarize(made), most_bars=10_000).to_plotly_json()["data"]
    return traces
