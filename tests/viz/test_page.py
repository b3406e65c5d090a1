"""The HTML page: one file, nothing from elsewhere, no name that breaks it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipesim.files import CannotWrite
from pipesim.metrics import summarize
from pipesim.viz.chart import chart
from pipesim.viz.comparison import comparison
from pipesim.viz.page import SCRIPTS, asset, html, plotly_js, write_html
from tests.viz.cases import timeline


def test_a_page_needs_nothing_else() -> None:
    text = html(chart(timeline("1f1b", 4, 8), summarize(timeline("1f1b", 4, 8))))
    own = text.replace(plotly_js(), "")
    assert len(own) < 120_000
    assert not re.search(r"(?:src|href)=['\"](?!data:)", own)
    assert not re.search(r"https?://", own)


def test_names_are_escaped() -> None:
    made = timeline("1f1b", 2, 2)
    name = "</script><img src=x onerror=alert(1)>'\"&🚀"
    named = replace(made, program=replace(made.program, schedule=made.program.schedule.renamed(name)))
    own = html(chart(named, summarize(named))).replace(plotly_js(), "")
    assert "<img" not in own
    assert own.count("</script>") == len(SCRIPTS) + 2
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&#x27;&quot;&amp;🚀" in own


def test_the_summary_and_the_table_are_in_the_page() -> None:
    made = timeline("1f1b", 4, 8, memory=True)
    assert "<dt>peak memory</dt>" in html(chart(made, summarize(made)))
    assert "<td class='best'>" in html(comparison([made, timeline("gpipe", 4, 8)]))


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    figure = chart(timeline("1f1b", 2, 2), summarize(timeline("1f1b", 2, 2)))
    write_html(figure, tmp_path / "chart.html")
    assert (tmp_path / "chart.html").read_text(encoding="utf-8").endswith("</html>\n")
    with pytest.raises(CannotWrite, match="does not exist"):
        write_html(figure, tmp_path / "no" / "chart.html")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_may_stand_in_a_page(name: str) -> None:
    assert "</script" not in asset(name)
