"""Objects show themselves in a notebook."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipesim.metrics import summarize
from pipesim.schedules.catalogue import FAMILIES
from tests.viz.browser import Sheet, browser
from tests.viz.cases import timeline


def test_a_timeline_is_a_frame_with_its_page() -> None:
    shown = timeline("1f1b", 4, 8)._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert shown.count("<") == 2
    assert len(shown) < 2_500_000


def test_metrics_are_a_table() -> None:
    shown = summarize(timeline("1f1b", 4, 8))._repr_html_()
    assert "<td style='text-align:left'>step time</td><td>351 ms</td>" in shown


def test_a_schedule_is_drawn_in_units_of_time() -> None:
    shown = FAMILIES["1f1b"].build(ranks=4, microbatches=8)._repr_html_()
    assert "step time&lt;/dt&gt;&lt;dd&gt;33 s" in shown


def test_a_schedule_too_long_to_draw_is_said() -> None:
    long = FAMILIES["gpipe"].build(ranks=64, microbatches=3000)
    assert replace(long, name="<b>")._repr_html_() == "<pre>&lt;b&gt;: 384,000 actions on 64 ranks</pre>"


@pytest.mark.slow
def test_the_frame_works(tmp_path: Path) -> None:
    (tmp_path / "notebook.html").write_text(f"<html><body>{timeline('1f1b', 4, 8)._repr_html_()}</body></html>")
    with browser() as opened:
        sheet: Any = Sheet(opened)
        sheet.page.goto((tmp_path / "notebook.html").as_uri())
        frame = sheet.page.frame_locator("iframe")
        frame.locator("#chart[data-ready=yes]").wait_for()
        assert frame.locator(".bars .point text").count() == 64
        assert sheet.complaints == []
