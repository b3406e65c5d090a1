"""The playground's callbacks: from controls to chart and back to the address."""

from __future__ import annotations

import base64
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from dash import Dash, Input, Output, State, ctx, no_update

from pipesim.cli.playground import page
from pipesim.cli.playground import state as states
from pipesim.errors import PipesimError
from pipesim.timeline_file import save_timeline
from pipesim.viz.chart import chart
from pipesim.viz.comparison import comparison
from pipesim.viz.look.palette import ThemeName
from pipesim.viz.page import for_page, html
from pipesim.viz.trace import trace_json

_CONTROLS = [Input(name, "value") for name in page.CONTROLS]


# Written by the browser, for a control that wrote the address and read it, too, would be a circle.
_REMEMBER = """(query) => {
    history.replaceState(null, "", query || location.pathname);
    return window.dash_clientside.no_update;
}"""


def make_app() -> Any:
    """The Dash application, not yet served."""
    made: Any = Dash(
        "pipesim", assets_folder=str(files("pipesim.viz").joinpath("assets")), title="pipesim", update_title=""
    )
    made.layout = page.layout
    made.callback([Output(name, "value") for name in page.CONTROLS], Input("url", "search"))(_from_address)
    places = {"chart": ("figure", "style"), "figures": ("children",), "table": ("children",),
              "trouble": ("children",), "query": ("data",)}  # fmt: skip
    outputs = [Output(name, what) for name, each in places.items() for what in each]
    made.callback(outputs, _CONTROLS, prevent_initial_call=True)(_update)
    downloads = [Input(name, "n_clicks") for name in page.DOWNLOADS]
    kept = [State(name, "value") for name in page.CONTROLS]
    made.callback(Output("download", "data"), downloads, kept, prevent_initial_call=True)(_download)
    made.clientside_callback(
        _REMEMBER, Output("query", "clear_data"), Input("query", "data"), prevent_initial_call=True
    )
    return made


def _from_address(search: str | None) -> list[Any]:
    state = states.state_of_query(search or "")
    values = {name: getattr(state, name) for name in page.CONTROLS}
    return list((values | {"schedules": list(state.schedules)}).values())


def _state(values: tuple[Any, ...]) -> states.State:
    return states.state_of(dict(zip(page.CONTROLS, values, strict=True)))


def _update(*values: Any) -> tuple[Any, ...]:
    """Everything that follows from the controls; what is wrong with them, and the rest as it was."""
    state = _state(values)
    try:
        runs = states.run(state.run_key())
    except PipesimError as error:
        return (no_update, no_update, no_update, no_update, page.trouble([str(error)]), state.query())
    timelines, found = [run[0] for run in runs], [run[1] for run in runs]
    figure = for_page(_figure(state).to_plotly_json())
    return (
        figure,
        {"height": f"{figure['layout']['height']}px"},
        page.figures(timelines[0], found[0]),
        page.metric_table(timelines, found),
        page.trouble(states.over_limit(state, found)),
        state.query(),
    )


def _figure(state: states.State) -> Any:
    runs = states.run(state.run_key())
    theme: ThemeName = "dark" if state.theme == "dark" else "light"
    if len(runs) == 1:
        return chart(*runs[0], theme=theme, picture=False)
    return comparison([run[0] for run in runs], [run[1] for run in runs], theme=theme, picture=False)


def _download(*values: Any) -> Any:
    """A file's content and name: the page of all schedules, or trace or timeline of the first."""
    state = _state(values[len(page.DOWNLOADS) :])
    try:
        timeline = states.run(state.run_key())[0][0]
    except PipesimError:
        return no_update
    if ctx.triggered_id == "save-page":
        return {"content": html(_figure(state)), "filename": f"{timeline.name}.html", "type": "text/html"}
    if ctx.triggered_id == "save-trace":
        return {"content": trace_json(timeline), "filename": f"{timeline.name}.trace.json"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{timeline.name}.npz"
        save_timeline(timeline, path)
        return {"content": base64.b64encode(path.read_bytes()).decode(), "filename": path.name, "base64": True}
