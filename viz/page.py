"""A figure as one HTML file that needs nothing else: plotly.js is in it."""

from __future__ import annotations

import json
import os
from html import escape
from importlib.resources import files
from typing import Any

import plotly.graph_objects as go

from pipesim.files import write_atomically
from pipesim.viz.encode import to_json

_CONFIG = {"responsive": True, "displaylogo": False, "scrollZoom": True}


def write_html(figure: go.Figure, path: str | os.PathLike[str]) -> None:
    """Write a self-contained page, whole or not at all. Raises CannotWrite."""
    write_atomically(path, html(figure))


def html(figure: go.Figure) -> str:
    """The page as text."""
    content = figure.to_plotly_json()
    return "".join(
        (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            f"<title>{escape(_title(content))}</title>",
            "<meta name='viewport' content='width=device-width,initial-scale=1'>",
            "<style>html,body{margin:0}</style>",
            f"<script>{plotly_js()}</script></head><body><div id='chart'></div><script>",
            f"Plotly.newPlot('chart',{to_json(content['data'])},{to_json(content['layout'])},{json.dumps(_CONFIG)});",
            "</script></body></html>\n",
        )
    )


def plotly_js() -> str:
    """The library, as shipped with the Python package."""
    return files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")


def _title(figure: dict[str, Any]) -> str:
    return "pipesim"
