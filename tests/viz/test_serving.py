"""Charts of serving: what their traces hold."""

import numpy as np

from pipesim.viz.serving import Levels, StepBoxes, latency_chart, load_chart, window_chart


def test_a_window_has_a_trace_for_each_kind_of_step() -> None:
    boxes = StepBoxes(
        stage=np.array([0, 1, 0, 1]), start_s=np.array([0.0, 1.0, 1.0, 2.0]), end_s=np.array([1.0, 2.0, 2.0, 3.0]),
        group=np.array([0, 0, 1, 1]), decoding=np.array([4, 4, 0, 0]), prompt_tokens=np.array([0, 0, 64, 64]),
    )  # fmt: skip
    levels = Levels(np.array([0.0, 1.0]), np.array([4.0, 5.0]), np.array([0.0, 1.0]), np.array([0.1, 0.2]))
    figure = window_chart("run", "2 steps", boxes, levels)
    assert [trace.name for trace in figure.data] == ["decode", "prompts", "running", "waiting", "cache"]
    assert list(figure.data[0].base) == [0.0, 1.0]
    assert list(figure.data[1].x) == [1.0, 1.0]
    assert "group 1: 0 decode, 64 tokens of prompts" in figure.data[1].hovertext[0]


def test_latencies_are_curves_that_end_with_all_requests() -> None:
    figure = latency_chart("latencies", {"first": np.array([0.1, 0.2, 0.4]), "none": np.array([])})
    assert [trace.name for trace in figure.data] == ["first"]
    assert list(figure.data[0].x) == [0.1, 0.2, 0.4]
    assert figure.data[0].y[-1] == 1.0


def test_a_load_curve_has_a_gap_where_there_is_no_latency() -> None:
    figure = load_chart("load", [1.0, 2.0], {"TTFT p50": [0.1, None]})
    assert list(figure.data[0].y) == [0.1, None]
