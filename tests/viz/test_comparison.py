"""Several timelines on one axis, and who is best at what."""

import pytest

from pipesim.metrics import summarize
from pipesim.viz.comparison import comparison
from pipesim.viz.panels.payload import unpacked
from pipesim.viz.sections.table import MetricRow, best_of
from tests.viz.cases import timeline


def test_panels_share_the_time_axis_and_the_legend() -> None:
    made = [timeline(name, 4, 8) for name in ("gpipe", "1f1b", "interleaved")]
    figure = comparison(made).to_plotly_json()
    assert {trace["xaxis"] for trace in figure["data"]} == {"x"}
    assert {trace["yaxis"] for trace in figure["data"]} == {"y", "y2", "y3"}
    names = [trace["name"] for trace in figure["data"] if trace.get("showlegend", True)]
    assert len(names) == len(set(names))
    about = figure["layout"]["meta"]["pipesim"]
    ends = [unpacked(panel["timeline"])["end"].max() for panel in about["panels"]]
    assert ends == [one.step_time_s for one in made]
    assert figure["layout"]["xaxis"]["range"][1] >= max(ends)


def test_the_table_marks_the_best() -> None:
    made = [timeline(name, 4, 8) for name in ("gpipe", "1f1b", "interleaved")]
    table = comparison(made).layout["meta"]["pipesim"]["table"]
    assert table["names"] == ["gpipe", "1f1b", "interleaved"]
    best = {row["label"]: row["best"] for row in table["rows"]}
    assert best["step time"] == (2,)
    assert best["peak activations, microbatches"] == (1,)


@pytest.mark.parametrize(
    ("values", "sign", "best"),
    [
        ((3.0, 1.0, 2.0), -1, (1,)),
        ((3.0, 1.0, 2.0), 1, (0,)),
        ((1.0, 1.0 + 1e-12, 2.0), -1, (0, 1)),
        ((1.0, 1.0), -1, ()),
        ((None, 5.0), -1, ()),
        ((None, 5.0, 4.0), -1, (2,)),
    ],
)
def test_best_of_a_row(values: tuple[float | None, ...], sign: int, best: tuple[int, ...]) -> None:
    assert best_of(MetricRow("x", values, ("",) * len(values), sign)) == best


def test_one_timeline_alone() -> None:
    alone = timeline("1f1b", 2, 2)
    assert len(comparison([alone], [summarize(alone)]).layout["meta"]["pipesim"]["panels"]) == 1
