"""The report says what the numbers say."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.estimate import estimate
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model_catalog import load_model
from pipesim.engine.event import simulate
from pipesim.ir.lower import lower
from pipesim.metrics import summarize
from pipesim.schedules.catalogue import FAMILIES
from pipesim.timeline import MemoryTrace, Timeline
from pipesim.viz.kineto import read_profiler_traces
from pipesim.viz.page import plotly_js
from pipesim.viz.report import Report, report_html, write_report
from pipesim.viz.sections.advice import advice
from pipesim.viz.sections.breakdown import memory_by_rank, time_by_rank, time_by_stage
from pipesim.viz.sections.roofline import points, roofline
from tests.viz.cases import timeline


def said(made: Timeline) -> list[str]:
    return [one.text for one in advice(made, summarize(made))]


def test_a_slow_rank_is_named_with_what_it_costs() -> None:
    """Rank 3 works 20 ms + 40 ms a microbatch, the others half: the mean is 5/8 of it."""
    first = said(timeline("1f1b", 4, 32, times="F=10ms:10ms:10ms:20ms,B=20ms:20ms:20ms:40ms"))[0]
    assert first.startswith("Rank 3 works 60 % longer than the ranks do on average (it holds the last stage")
    assert first.endswith("moving layers off it would save up to 720 ms a step.")


def test_the_bubble_and_what_more_microbatches_would_do() -> None:
    """(p-1)/(m+p-1): 3/11 with 8 microbatches, 3/19 with 16."""
    text = said(timeline("gpipe", 4, 8, times="F=10ms,B=20ms"))[0]
    assert "costs 27 % of the GPUs' time: with twice the 8 microbatches it would be about 16 %" in text


def test_messages_sends_reduction_and_optimizer() -> None:
    texts = said(timeline("1f1b", 4, 8, times="F=10ms,B=20ms,C=5ms,reduce=30ms,optimizer=20ms"))
    assert any(text.startswith("Ranks stand still") for text in texts)
    assert any(text.startswith("Reducing gradients takes") for text in texts)
    assert any(text.startswith("The optimizer step takes") for text in texts)
    data = Path(__file__).parent.parent / "data" / "kineto"
    real = read_profiler_traces([data / f"interleaved_rank{rank}.json.gz" for rank in (0, 1)])
    assert any(text.startswith("Ranks are blocked in their own sends") for text in said(real))


def test_what_does_not_fit_comes_first() -> None:
    made = timeline("gpipe", 4, 16, memory=True)
    assert made.memory is not None
    tight: MemoryTrace = replace(made.memory, limit=np.full(4, 20e9))
    assert said(replace(made, memory=tight))[0].startswith("It does not fit: rank 0 needs")
    assert not any("does not fit" in text for text in said(made))


def test_nothing_to_say_about_one_rank() -> None:
    alone = timeline("1f1b", 1, 4, times="F=1,B=2")
    assert said(alone) == []
    assert "Nothing: no single cause" in report_html(Report(alone, summarize(alone)))


def test_time_of_a_rank_adds_up_to_the_step() -> None:
    for name in ("1f1b", "dualpipe"):
        made = timeline(name, 4, 8)
        bars = [trace for trace in time_by_rank(made, summarize(made)).data if trace["type"] == "bar"]
        total = np.sum([bar["x"] for bar in bars], axis=0)
        np.testing.assert_allclose(total, made.step_time_s)


@pytest.fixture(scope="module")
def estimated() -> Report:
    model, cluster = load_model("llama-3-8b"), load_cluster("dgx-h100:1")
    layout = Layout(pp=8, micro_batch=1, global_batch=16)
    schedule = FAMILIES["1f1b"].build(ranks=8, microbatches=16)
    made = estimate(model, cluster, layout, schedule.placement)
    run = simulate(lower(schedule), made.costs)
    return Report(run, summarize(run, made.costs), made.costs, made, {"a <b>": "x & y"}, ("so it is",), "pipesim x")


def test_a_report_of_an_estimate_has_all_its_parts(estimated: Report, tmp_path: Path) -> None:
    write_report(estimated, tmp_path / "report.html")
    own = (tmp_path / "report.html").read_text(encoding="utf-8").replace(plotly_js(), "")
    heads = re.findall(r"<h2>(.*?)</h2>", own)
    assert heads == [
        "What stands out", "Timeline", "Where each rank&#x27;s time goes", "Memory at each rank&#x27;s peak",
        "Communication", "Forward and backward of one microbatch on each stage", "Roofline of a layer",
        "Inputs and assumptions",
    ]  # fmt: skip
    assert "a &lt;b&gt;" in own
    assert "x &amp; y" in own
    assert "<pre>pipesim x</pre>" in own
    assert not re.search(r"https?://", own)


def test_memory_of_a_rank_adds_up_to_its_peak(estimated: Report) -> None:
    assert estimated.costs is not None
    assert estimated.costs.held is not None
    figure = memory_by_rank(estimated.timeline, estimated.costs.held)
    assert figure is not None
    assert estimated.timeline.memory is not None
    bars = [trace["x"] for trace in figure.data if trace["type"] == "bar"]
    np.testing.assert_allclose(np.sum(bars, axis=0), estimated.timeline.memory.peak)
    assert all((bar >= 0).all() for bar in bars)


def test_equal_stages_share_a_bar(estimated: Report) -> None:
    assert estimated.estimate is not None
    rows = time_by_stage(estimated.estimate.parts).layout["yaxis"]["ticktext"]
    assert list(rows) == ["stage 0", "stages 1–6", "stage 7"]


def test_no_kernel_is_above_the_roof(estimated: Report) -> None:
    assert estimated.estimate is not None
    site = estimated.estimate.sites[0]
    found = points(site)
    assert {point.name for point in found} >= {"qkv", "mlp up", "mlp down", "attention"}
    for point in found:
        roof = min(site.gpu.peak("bf16"), point.intensity * site.gpu.memory_bytes_per_s)
        assert 0.05 * roof < point.flops_per_s <= 1.02 * roof
    assert len(roofline(site).data) == 2
