"""The figure of a timeline holds its numbers."""

import base64
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipesim.idle import CAUSES, idle_spans
from pipesim.metrics import summarize
from pipesim.timeline import Timeline
from pipesim.viz.chart import chart
from pipesim.viz.encode import to_json
from pipesim.viz.look.palette import CAUSE_WORDS
from pipesim.viz.panels.payload import unpacked
from tests.viz.cases import timeline


def content(made: Timeline) -> dict[str, Any]:
    """A figure as plotly.js gets it, numbers unpacked again."""
    figure: dict[str, Any] = chart(made, summarize(made)).to_plotly_json()
    return figure | {"data": [{key: _array(value) for key, value in trace.items()} for trace in figure["data"]]}


def _array(value: Any) -> Any:
    if isinstance(value, dict) and "bdata" in value:
        return np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
    return np.asarray(value) if isinstance(value, list) and value and isinstance(value[0], float) else value


def bars(figure: dict[str, Any], group: str) -> list[dict[str, Any]]:
    return [trace for trace in figure["data"] if trace["type"] == "bar" and trace["meta"] == group]


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "dualpipe", "seq1f1b"])
def test_the_numbers_drawn_are_the_numbers_computed(name: str) -> None:
    made = timeline(name, 4, 8)
    figure = content(made)
    columns = unpacked(figure["layout"]["meta"]["pipesim"]["panels"][0]["timeline"])
    np.testing.assert_array_equal(columns["start"], made.start)
    np.testing.assert_array_equal(columns["end"], made.end)
    drawn = {}
    for trace in [*bars(figure, "compute"), *bars(figure, "transfers")]:
        for op, base, length, y in zip(trace["customdata"], trace["base"], trace["x"], trace["y"], strict=True):
            drawn[int(op)] = (base, length, round(float(y)))
    takes_time = np.flatnonzero((made.end > made.start) | (made.program.ops.kind <= 3)).tolist()
    assert drawn == {op: (made.start[op], made.end[op] - made.start[op], made.program.rank[op]) for op in takes_time}


def test_every_action_has_its_text_and_its_hover() -> None:
    made = timeline("1f1b", 4, 8)
    figure = content(made)
    assert len(figure["data"]) < 30
    found = {}
    for trace in bars(figure, "compute"):
        if "text" in trace:
            found |= dict(zip(trace["hovertext"], trace["text"], strict=True))
    assert len(found) == 64
    for hover, text in found.items():
        assert re.match(r"<b>\dF\d</b> forward<br>|<b>\dB\d</b> backward<br>", hover)
        assert f"microbatch {text}<br>" in hover
    waited = next(hover for hover in found if hover.startswith("<b>0B0</b>"))
    assert waited.split("<br>")[1:] == [
        "rank 0 · stage 0 · microbatch 0",
        "103 → 123 ms, <b>20 ms</b>",
        "before: 62.5 ms waits for producer",
        "before: 500 µs waits for message (0RECV_B0)",
    ]


def test_idle_time_is_drawn_by_cause() -> None:
    made = timeline("1f1b", 4, 8)
    spans = idle_spans(made)
    by_name = {trace["name"]: float(trace["x"].sum()) for trace in bars(content(made), "idle")}
    for code, cause in enumerate(CAUSES):
        expected = float((spans.end - spans.begin)[spans.cause == code].sum())
        if cause != "optimizer":
            assert by_name.get(CAUSE_WORDS[cause], 0.0) == pytest.approx(expected)


def test_memory_is_beneath_on_the_same_axis_with_its_limit() -> None:
    made = timeline("1f1b", 4, 8, memory=True)
    assert made.memory is not None
    figure = content(made)
    curves = {trace["name"]: trace for trace in figure["data"] if trace["meta"] in ("memory", "limit")}
    assert {trace["xaxis"] for trace in figure["data"]} == {"x"}
    for rank in range(4):
        assert curves[f"rank {rank}"]["y"].max() == made.memory.peak[rank]
    assert curves["memory limit"]["y"].tolist() == [60e9, 60e9]


def test_without_bytes_memory_is_microbatches_in_flight() -> None:
    curves = [trace for trace in content(timeline("1f1b", 4, 8))["data"] if trace["meta"] == "memory"]
    assert [trace["y"].max() for trace in curves] == [4, 3, 2, 1]


def test_the_bubble_figures_are_in_the_title() -> None:
    title = content(timeline("1f1b", 4, 8))["layout"]["title"]["text"]
    assert "1f1b, 4 ranks, 8 microbatches" in title
    assert "bubble fraction" in title
    assert "bubble ratio" in title
    assert "span bubble rate" in title


def test_many_boxes_become_a_picture_and_keep_their_numbers() -> None:
    made = timeline("1f1b", 8, 64)
    figure = content(made)
    assert bars(figure, "compute") == []
    assert figure["layout"]["images"][0]["source"].startswith("data:image/png;base64,")
    about = figure["layout"]["meta"]["pipesim"]
    assert about["painted"] is True
    np.testing.assert_array_equal(unpacked(about["panels"][0]["timeline"])["end"], made.end)
    assert "picture" in figure["layout"]["annotations"][0]["text"]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a'b\"c & d", "🚀 émoji", "x" * 200, "</script><b>"])
def test_any_name_is_only_a_name(name: str) -> None:
    made = timeline("1f1b", 2, 2)
    program = replace(made.program, schedule=made.program.schedule.renamed(name))
    figure = content(replace(made, program=program))
    title = figure["layout"]["title"]["text"]
    assert "<script" not in title
    assert len(title) < 400
    assert "<" not in to_json(figure)
    assert json.loads(to_json(figure))["layout"]["meta"]["pipesim"]["headline"][0] == name


def test_same_timeline_same_figure() -> None:
    made = timeline("interleaved", 4, 8)
    assert to_json(content(made)) == to_json(content(made))
