"""A figure as one HTML file that needs nothing else: plotly.js, our own scripts and the data are in it."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import plotly.graph_objects as go

from pipesim.files import write_atomically
from pipesim.viz.encode import to_json

SCRIPTS = ("decode.js", "scene.js", "words.js", "paint.js", "links.js", "tip.js", "overlay.js", "page.js")
_CONFIG = {"responsive": True, "displayModeBar": False}
_TITLE_HEIGHT = 52  # pixels of a figure's own title, which the page says better
_HINT = (
    "{zoom}, double-click for the whole step. Click a box for what it waits for and what waits for it; Esc lets go. "
    "Click a name in the legend to hide it."
)
_WHEEL = "Scroll to zoom, drag to move, shift-drag to zoom into a window"
_NO_WHEEL = "Shift-drag to zoom into a window, drag to move"


def write_html(figure: go.Figure, path: str | os.PathLike[str]) -> None:
    """Write a self-contained page, whole or not at all. Raises CannotWrite."""
    write_atomically(path, html(figure))


def html(figure: go.Figure, *, compact: bool = False) -> str:
    """The page as text. compact: plotly.js is in it in a third of its size, unpacked by the browser."""
    content = figure.to_plotly_json()
    about = content["layout"].get("meta", {}).get("pipesim")
    if about is None:
        return page("pipesim", graph("chart", content), compact=compact)
    headline, below = about["headline"]
    body = [
        "<header><div>",
        f"<h1>{escape(headline)}</h1><p class='about'>{escape(below)}</p></div>{tools()}</header>",
        figure_strip(about.get("summary", ())),
        graph("chart", content),
        hint(),
        metric_table(about["table"]) if "table" in about else "",
    ]
    return page(headline, "".join(body), compact=compact)


def page(title: str, body: str, *, compact: bool = False) -> str:
    """A whole document around a body that uses `graph`."""
    return "".join(
        (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            f"<title>{escape(title)}</title>",
            "<meta name='viewport' content='width=device-width,initial-scale=1'>",
            "<link rel='icon' href='data:,'>",
            f"<style>{asset('page.css')}</style>",
            *(f"<script>{asset(name)}</script>" for name in SCRIPTS),
            f"<script>{_packed_library() if compact else plotly_js()}</script>",
            f"</head><body><main>{body}</main></body></html>\n",
        )
    )


def graph(name: str, content: Mapping[str, Any], *, zoom: bool = True) -> str:
    """A figure in a page: its place and the script that draws it. zoom: whether the mouse wheel zooms."""
    config = json.dumps(_CONFIG | {"scrollZoom": zoom})
    return (
        f"<div class='chart' id='{name}'></div>"
        f"<script>pipesim.show('{name}',{to_json(for_page(content))},{config});</script>"
    )


def hint(*, zoom: bool = True) -> str:
    return f"<p class='hint'>{escape(hint_text(zoom=zoom))}</p>"


def hint_text(*, zoom: bool = True) -> str:
    """How to use a chart. zoom: whether the mouse wheel zooms."""
    return _HINT.format(zoom=_WHEEL if zoom else _NO_WHEEL)


def tools() -> str:
    """Buttons: shades, whole step, picture, theme."""
    return (
        "<div class='tools'><span class='group' role='group' aria-label='shade'>"
        "<button data-set='shade' value='chunk' aria-pressed='true'>Shade by chunk</button>"
        "<button data-set='shade' value='microbatch' aria-pressed='false'>by microbatch</button></span>"
        "<button data-do='whole'>Whole step</button><button data-do='save'>Save picture</button>"
        "<button data-set='theme' value='dark'>Light / dark</button></div>"
    )


def figure_strip(entries: Sequence[Sequence[str]]) -> str:
    """The figures above a chart."""
    cells = []
    for name, value, note in entries:
        bad = " class='bad'" if "OVER" in note else ""
        cells.append(f"<div{bad}><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(note)}</dd></div>")
    return f"<dl class='figures'>{''.join(cells)}</dl>" if cells else ""


def metric_table(table: Mapping[str, Any]) -> str:
    """Rows of {label, texts, best} under the names of the timelines."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table["names"])
    rows = []
    for row in table["rows"]:
        marks = [" class='best'" if at in row["best"] else "" for at in range(len(row["texts"]))]
        cells = "".join(f"<td{mark}>{escape(text)}</td>" for mark, text in zip(marks, row["texts"], strict=True))
        rows.append(f"<tr><th>{escape(row['label'])}</th>{cells}</tr>")
    body = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<div class='scroll'><table>{body}</table></div>"


def plotly_js() -> str:
    """The library, as shipped with the Python package."""
    return files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")


@cache
def _packed_library() -> str:
    packed = base64.b64encode(zlib.compress(plotly_js().encode(), 9)).decode()
    return f"pipesim.library = pipesim.load('{packed}');"


def asset(name: str) -> str:
    return files("pipesim.viz").joinpath("assets", name).read_text(encoding="utf-8")


def for_page(content: Mapping[str, Any]) -> dict[str, Any]:
    """The figure without what the page has of its own: title, table, and the picture of boxes that it paints."""
    layout = dict(content["layout"])
    about = layout.get("meta", {}).get("pipesim", {})
    if about and layout.pop("title", None) is not None:
        layout = _smaller(layout, _TITLE_HEIGHT)
    if about:
        layout["meta"] = {"pipesim": {key: about[key] for key in about if key not in ("summary", "table", "headline")}}
    if about.get("painted"):
        layout["images"] = []
        layout["annotations"] = [note for note in layout.get("annotations", ()) if note.get("name") != "raster"]
    return {"data": content["data"], "layout": layout}


def _smaller(layout: dict[str, Any], top: int) -> dict[str, Any]:
    """Take pixels away above the plot; what is placed from the container's top moves with it."""
    height = layout["height"] - top
    legend = dict(layout["legend"])
    legend["y"] = 1 - ((1 - legend["y"]) * layout["height"] - top) / height
    return layout | {
        "height": height,
        "margin": layout["margin"] | {"t": layout["margin"]["t"] - top},
        "legend": legend,
    }
