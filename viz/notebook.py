"""How timelines, schedules and figures of a step show themselves in a notebook: `_repr_html_` of each comes here."""

from __future__ import annotations

from html import escape

from pipesim.costs.plain import plain_costs
from pipesim.engine.choose import simulate
from pipesim.ir.lower import lower
from pipesim.ir.schedule import Schedule
from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline
from pipesim.viz.chart import chart
from pipesim.viz.page import html
from pipesim.viz.sections.table import metric_rows

_AROUND = 330  # pixels of the page beside its chart
_MOST_BOXES = 300_000


def timeline_html(timeline: Timeline) -> str:
    """The page of the chart in a frame: it works in every notebook, without a network and after export."""
    figure = chart(timeline, summarize(timeline), picture=False)
    return _frame(html(figure, compact=True), figure.layout["height"] + _AROUND)


def schedule_html(schedule: Schedule) -> str:
    """The chart of a schedule whose forwards, input and weight gradients take one unit of time each."""
    if len(schedule) > _MOST_BOXES:
        return f"<pre>{escape(schedule.name)}: {len(schedule):,} actions on {schedule.ranks} ranks</pre>"
    costs = plain_costs({"F": 1, "I": 1, "W": 1}).of(schedule)
    return timeline_html(simulate(lower(schedule), costs))


def metrics_html(metrics: Metrics) -> str:
    """The figures of a step as a table."""
    rows = "".join(
        f"<tr><td style='text-align:left'>{escape(row.label)}</td><td>{escape(row.texts[0])}</td></tr>"
        for row in metric_rows([metrics])
    )
    return f"<table>{rows}</table>"


def _frame(page: str, height: int) -> str:
    style = "width:100%;border:0;border-radius:8px"
    return f'<iframe srcdoc="{escape(page, quote=True)}" style="{style}" height="{height}"></iframe>'
