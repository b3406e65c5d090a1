"""Figures as PNG, SVG or PDF, drawn by a browser without a window (kaleido)."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from pipesim.errors import PipesimError
from pipesim.files import write_atomically

FORMATS = ("png", "svg", "pdf")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_LONGEST_S = 90.0
_MOST_PATTERNS = 100


@dataclass(eq=False)
class CannotDraw(PipesimError):
    """No image can be made here."""

    path: str
    reason: str
    works: str

    def __str__(self) -> str:
        return f"cannot draw {self.path}: {self.reason}; {self.works}, or write HTML (.html), which needs neither"


def write_image(figure: go.Figure, path: str | os.PathLike[str], *, width: int = 1400, scale: float = 2.0) -> None:
    """Write `.png`, `.svg` or `.pdf`, by the name's ending. width: pixels; scale: of a PNG. Raises CannotDraw."""
    ending = Path(path).suffix.lower().lstrip(".")
    if ending not in FORMATS:
        raise CannotDraw(str(path), f"images are {', '.join(FORMATS)}", "give a name such as chart.svg")
    kaleido, browser = _kaleido(path), _browser(path)
    content = figure.to_plotly_json()
    if ending == "pdf":
        content["data"] = _few_patterns(content["data"])
    content["layout"] = {key: value for key, value in content["layout"].items() if key != "meta"}
    options = {"format": ending, "width": width, "height": content["layout"].get("height", 700), "scale": scale}
    library = Path(import_module("plotly").__file__ or "").parent / "package_data" / "plotly.min.js"
    with_what = {"path": browser, "plotlyjs": library, "mathjax": False, "timeout": _LONGEST_S}
    try:
        data = kaleido.calc_fig_sync(content, opts=options, kopts=with_what)
    except Exception as error:  # whatever a browser that does not start raises: several libraries lie between
        reason = f"the browser {browser} failed ({type(error).__name__}: {error})"
        raise CannotDraw(str(path), reason, "try another Chromium or Chrome") from error
    write_atomically(path, data)


def _few_patterns(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chrome makes a bitmap of each patterned box in a PDF, 0.1 MB each: of many boxes the patterns are left out."""
    bars = [trace for trace in data if trace.get("meta") == "compute" and "pattern" in trace.get("marker", {})]
    if sum(len(trace["hovertext"]) for trace in bars) <= _MOST_PATTERNS:
        return data
    plain = {"pattern": {"shape": ""}}
    return [trace | {"marker": trace["marker"] | plain} if trace["type"] == "bar" else trace for trace in data]


def _kaleido(path: str | os.PathLike[str]) -> Any:
    if find_spec("kaleido") is None:
        raise CannotDraw(str(path), "kaleido is not installed", "pip install 'pipesim[images]'")
    return import_module("kaleido")


def _browser(path: str | os.PathLike[str]) -> str:
    """The machine's Chromium or Chrome, or the one that kaleido was told to fetch."""
    found = next((where for name in _BROWSERS if (where := shutil.which(name))), None)
    found = found or import_module("choreographer.browsers.chromium").Chromium.find_browser(skip_local=False)
    if not found:
        works = "install one (`apt-get install chromium`, `brew install --cask chromium`) or run `kaleido_get_chrome`"
        raise CannotDraw(str(path), "no Chromium or Chrome found", works)
    return str(found)
