"""A figure into a file, by the ending of its name."""

from __future__ import annotations

import os
from pathlib import Path

import plotly.graph_objects as go

from pipesim.files import write_atomically
from pipesim.viz.encode import to_json
from pipesim.viz.images import FORMATS, write_image
from pipesim.viz.page import write_html
from pipesim.viz.panel import MOST_BARS

_MOST_BARS_OF_AN_IMAGE = 20_000  # a browser draws these in some seconds, and nobody zooms in


def most_bars_in(path: str | os.PathLike[str] | None) -> int:
    """How many boxes are drawn one by one in a file of this name, for `chart` and `comparison`."""
    image = path is not None and Path(path).suffix.lower().lstrip(".") in FORMATS
    return _MOST_BARS_OF_AN_IMAGE if image else MOST_BARS


def write_figure(figure: go.Figure, path: str | os.PathLike[str]) -> None:
    """`.png`, `.svg` and `.pdf` as images, `.json` as plotly's own JSON, everything else as an HTML page.

    Raises CannotWrite, CannotDraw.
    """
    ending = Path(path).suffix.lower().lstrip(".")
    if ending in FORMATS:
        write_image(figure, path)
    elif ending == "json":
        write_atomically(path, to_json(figure.to_plotly_json()))
    else:
        write_html(figure, path)
