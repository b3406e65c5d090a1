"""A figure into a file, by the ending of its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from pipesim.files import write_atomically
from pipesim.viz.encode import to_json
from pipesim.viz.images import FORMATS, write_image
from pipesim.viz.page import write_html

_MOST_BARS_OF_AN_IMAGE = 20_000  # a browser draws these in some seconds, and nobody zooms in


def drawing_for(path: str | os.PathLike[str]) -> dict[str, Any]:
    """How `chart` and `comparison` best draw for a file of this name: boxes one by one in an image, and a picture
    of them for whoever reads the JSON; the page needs neither."""
    ending = Path(path).suffix.lower().lstrip(".")
    if ending in FORMATS:
        return {"most_bars": _MOST_BARS_OF_AN_IMAGE}
    return {"picture": ending == "json"}


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
