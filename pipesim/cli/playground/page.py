"""The playground's page: controls on the left, figures and chart on the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from pipesim.cli.playground.state import MOST_MICROBATCHES, MOST_RANKS, MOST_VIRTUAL, State
from pipesim.ir.program import COMM_POLICIES
from pipesim.metrics import Metrics
from pipesim.schedules.catalogue import FAMILIES
from pipesim.timeline import Timeline
from pipesim.viz.comparison import table
from pipesim.viz.page import hint_text
from pipesim.viz.sections.summary import summary

CONTROLS = tuple(State.__dataclass_fields__)  # each the id of a control
_TEXTS = {
    "forward": ("Forward", "of a rank's whole share of one microbatch, e.g. 18.5ms"),
    "input_grad": ("Input gradient", "with the weight gradient it makes the whole backward"),
    "weight_grad": ("Weight gradient", "0 where it is part of the input gradient"),
    "latency": ("Latency", "of a message, e.g. 20us"),
    "message": ("Message", "size of what passes between stages, e.g. 16MB"),
    "link": ("Link speed", "e.g. 50GB/s or 400Gb/s"),
    "reduce": ("Reduction", "of a rank's gradients, after its last backward"),
    "optimizer": ("Optimizer", "its step"),
}
_DOWNLOADS = (("page", "page"), ("trace", "Perfetto trace"), ("timeline", "timeline"))
DOWNLOADS = tuple(f"save-{kind}" for kind, _ in _DOWNLOADS)


def layout() -> html.Div:
    """The page before any state is known."""
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="query"),
            dcc.Download(id="download"),
            html.Aside([html.H1("pipesim"), *_controls(State())], id="controls"),
            html.Main(
                [
                    html.Div(id="trouble", role="status"),
                    html.Dl(id="figures", className="figures"),
                    dcc.Graph(id="chart", config={"displayModeBar": False, "scrollZoom": True, "responsive": True}),
                    html.P(hint_text(), className="hint"),
                    html.Div(id="table", className="scroll"),
                    html.Div([_button(*one) for one in _DOWNLOADS], className="tools"),
                ]
            ),
        ],
        id="playground",
    )


def _button(kind: str, word: str) -> html.Button:
    return html.Button(f"Download {word}", id=f"save-{kind}", n_clicks=0)


def _controls(state: State) -> list[Any]:
    families = [{"label": name, "value": name} for name in FAMILIES]
    comm = dcc.Dropdown(list(COMM_POLICIES), state.comm, id="comm", clearable=False)
    limit = dcc.Input(type="number", id="memory_limit", debounce=0.3, placeholder="none")
    return [
        _named("Schedules", dcc.Dropdown(families, list(state.schedules), id="schedules", multi=True, clearable=False)),
        _number("ranks", "Ranks", state.ranks, MOST_RANKS),
        _number("microbatches", "Microbatches", state.microbatches, MOST_MICROBATCHES),
        _number("virtual", "Stages a rank", state.virtual, MOST_VIRTUAL, "for schedules that may have several"),
        _named("Memory limit", limit, "microbatches of activations that a rank may hold"),
        html.Div([_text(name, getattr(state, name)) for name in _TEXTS], className="pairs"),
        _named("Transfers", comm, "which of them share a lane"),
        _named("Theme", dcc.RadioItems(["light", "dark"], state.theme, id="theme", inline=True)),
    ]


def _named(word: str, control: Any, note: str = "") -> html.Label:
    """A control under its name; pointing at it tells the rest."""
    return html.Label([html.Span(word), control], title=note)


def _number(name: str, word: str, value: int, most: int, note: str = "") -> html.Label:
    return _named(word, dcc.Input(value=value, type="number", id=name, min=1, max=most, step=1), note)


def _text(name: str, value: str) -> html.Label:
    word, note = _TEXTS[name]
    return _named(word, dcc.Input(value=value, type="text", id=name, debounce=0.3, autoComplete="off"), note)


def trouble(lines: Sequence[str]) -> list[html.P]:
    """What is wrong with the controls, or nothing."""
    return [html.P(line) for line in lines]


def figures(timeline: Timeline, metrics: Metrics) -> list[html.Div]:
    """The strip of figures of the first schedule."""
    return [
        html.Div([html.Dt(name), html.Dd(value), html.Dd(note)], className="bad" if "OVER" in note else "")
        for name, value, note in summary(timeline, metrics)
    ]


def metric_table(timelines: Sequence[Timeline], found: Sequence[Metrics]) -> html.Table:
    """All figures of all schedules, the best of each row marked."""
    content = table(timelines, found)
    head = html.Thead(html.Tr([html.Th(""), *(html.Th(name) for name in content["names"])]))
    rows = [
        html.Tr(
            [
                html.Th(row["label"]),
                *(html.Td(text, className="best" if at in row["best"] else "") for at, text in enumerate(row["texts"])),
            ]
        )
        for row in content["rows"]
    ]
    return html.Table([head, html.Tbody(rows)])
