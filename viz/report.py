"""The report of one step: a single HTML page with figures, what they mean, and where they come from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import plotly.graph_objects as go

from pipesim.costs.costs import Costs
from pipesim.costs.estimate import Estimate
from pipesim.files import write_atomically
from pipesim.idle import CAUSES
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.metrics import Metrics
from pipesim.timeline import Timeline
from pipesim.units import format_bytes, format_fraction, format_seconds
from pipesim.viz.chart import chart
from pipesim.viz.look.layout import about
from pipesim.viz.look.palette import CAUSE_WORDS, FLOW_WORDS
from pipesim.viz.page import figure_strip, graph, hint, page, tools
from pipesim.viz.sections.advice import advice
from pipesim.viz.sections.breakdown import memory_by_rank, time_by_rank, time_by_stage
from pipesim.viz.sections.roofline import roofline
from pipesim.viz.sections.summary import summary


@dataclass(frozen=True, eq=False)
class Report:
    """What a report is made of. command: the command line that makes it again; assumptions: sentences."""

    timeline: Timeline
    metrics: Metrics
    costs: Costs | None = None
    estimate: Estimate | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    assumptions: Sequence[str] = ()
    command: str = ""


def write_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the page, whole or not at all. Raises CannotWrite."""
    write_atomically(path, report_html(report))


def report_html(report: Report) -> str:
    timeline = report.timeline
    sections = [
        _head(report),
        figure_strip(summary(timeline, report.metrics)),
        _advice(report),
        _section("Timeline", _graph("chart", chart(timeline, report.metrics)) + hint(zoom=False)),
        _section("Where each rank's time goes", _graph("time", time_by_rank(timeline, report.metrics)) + _idle(report)),
        _memory(report),
        _section("Communication", _communication(report)),
        _work(report),
        _inputs(report),
    ]
    return page(f"{timeline.name}: report", "".join(sections))


def _head(report: Report) -> str:
    below = escape(about(report.timeline))
    return f"<header><div><h1>{escape(report.timeline.name)}</h1><p class='about'>{below}</p></div>{tools()}</header>"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _graph(name: str, figure: go.Figure) -> str:
    """Scrolling scrolls the page here, and does not zoom."""
    return graph(name, figure.to_plotly_json(), zoom=False)


def _advice(report: Report) -> str:
    found = advice(report.timeline, report.metrics, report.costs)
    if not found:
        return _section("What stands out", "<p>Nothing: no single cause costs more than 2 % of the step.</p>")
    items = "".join(f"<li>{escape(one.text)}</li>" for one in found)
    return _section("What stands out", f"<ol class='advice'>{items}</ol>")


def _idle(report: Report) -> str:
    """Idle time by cause, in seconds and parts of all ranks' step time."""
    metrics = report.metrics
    whole = report.timeline.ranks * metrics.step_time_s
    rows = [
        (CAUSE_WORDS[cause], format_seconds(metrics.idle_s[cause]), _share(metrics.idle_s[cause], whole))
        for cause in CAUSES
        if metrics.idle_s[cause] > 0
    ]
    return _table(("idle time, all ranks", "seconds", "of the step"), rows) if rows else ""


def _memory(report: Report) -> str:
    if report.costs is None or report.costs.held is None:
        return ""
    figure = memory_by_rank(report.timeline, report.costs.held)
    return _section("Memory at each rank's peak", _graph("memory", figure)) if figure is not None else ""


def _communication(report: Report) -> str:
    """By dimension: what compute waits for; and what passes between stages."""
    metrics, program = report.metrics, report.timeline.program
    words = {"pipeline": "between stages", "data": "gradient reduction", "tensor": "inside stages"}
    rows = [
        (words.get(name, name), format_seconds(seconds), _share(seconds, metrics.step_time_s))
        for name, seconds in metrics.exposed_comm_s.items()
    ]
    text = _table(("communication that compute waits for, mean of ranks", "seconds", "of the step"), rows)
    flows = []
    for flow, word in FLOW_WORDS.items():
        count = int(((program.ops.kind == Kind.SEND) & (program.flow == flow)).sum())
        if count:
            flows.append((word, f"{count:,}", *_sizes(report.costs, flow, count)))
    return text + (_table(("messages between stages", "a step", "each", "in all"), flows) if flows else "")


def _sizes(costs: Costs | None, flow: Flow, count: int) -> tuple[str, str]:
    size = None if costs is None else costs.message_bytes.get(flow)
    if size is None:
        return ("–", "–")
    mean = float(size.mean())
    return (format_bytes(mean), format_bytes(mean * count))


def _work(report: Report) -> str:
    """The stages' work and one layer's roofline, where they were estimated."""
    made = report.estimate
    if made is None:
        return ""
    stages = "Forward and backward of one microbatch on each stage"
    layer = "<p>Each product of a layer's forward on one rank, under the GPU's limits.</p>"
    return _section(stages, _graph("stages", time_by_stage(made.parts))) + _section(
        "Roofline of a layer", layer + _graph("roofline", roofline(made.sites[-1]))
    )


def _inputs(report: Report) -> str:
    rows = [(name, text) for name, text in report.inputs.items()]
    body = _table(("input", "value"), rows, left=True) if rows else ""
    if report.assumptions:
        body += "<h3>Assumptions</h3><ul>" + "".join(f"<li>{escape(one)}</li>" for one in report.assumptions) + "</ul>"
    if report.command:
        body += f"<h3>Made with</h3><pre>{escape(report.command)}</pre>"
    return _section("Inputs and assumptions", body)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: bool = False) -> str:
    columns = "".join(f"<th>{escape(one)}</th>" for one in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    kind = " class='left'" if left else ""
    return f"<div class='scroll'><table{kind}><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"


def _share(one: float, whole: float) -> str:
    return format_fraction(one / whole) if whole else "–"


__all__ = ["Report", "report_html", "write_report"]
