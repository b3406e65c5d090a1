"""What a command gives: files, and tables or JSON; the same words in every command."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from pipesim.errors import PipesimError
from pipesim.files import require_writable
from pipesim.metrics import Metrics
from pipesim.timeline import Timeline
from pipesim.timeline_file import TIMELINES

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ChartFile = Annotated[Path | None, typer.Option("--out", "--chart", help="Chart, an HTML file.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes (one a core).")]


@dataclass(eq=False)
class SameFile(PipesimError):
    """Two outputs that would overwrite each other."""

    first: str
    second: str
    path: str

    def __str__(self) -> str:
        return f"--{self.first} and --{self.second} are one file, {self.path}: give each its own"


@dataclass(eq=False)
class WrongEnding(PipesimError):
    """A file that would not be found to be what it is when it is read."""

    option: str
    path: str
    endings: tuple[str, ...]

    def __str__(self) -> str:
        return f"--{self.option} {self.path}: a name that ends in {' or '.join(self.endings)} works"


@dataclass(frozen=True)
class Outputs:
    """Files of one run, and JSON instead of tables."""

    panel: ClassVar[str] = "Output"

    out: Annotated[
        Path | None, typer.Option("--out", "--chart", help="Interactive chart, .html; or an image: .png, .svg, .pdf.")
    ] = None
    trace: Annotated[Path | None, typer.Option("--trace", help="Chrome/Perfetto trace, a JSON file.")] = None
    timeline: Annotated[Path | None, typer.Option("--timeline", help="The timeline itself: OUT.jsonl or OUT.npz.")] = (
        None
    )
    metrics: Annotated[Path | None, typer.Option("--metrics", help="A line a step: loss and seconds, JSONL.")] = None
    as_json: Json = False

    def require_writable(self) -> None:
        """Raises CannotWrite, SameFile, WrongEnding."""
        if self.timeline is not None and self.timeline.suffix not in TIMELINES:
            raise WrongEnding("timeline", str(self.timeline), TIMELINES)
        require_outputs(**{field.name: getattr(self, field.name) for field in fields(self) if field.name != "as_json"})

    def write(self, made: Timeline, found: Metrics) -> None:
        """Write chart, trace and timeline as asked for. Raises CannotWrite."""
        if self.out is not None:
            from pipesim.viz.chart import chart
            from pipesim.viz.output import drawing_for, write_figure

            write_figure(chart(made, found, **drawing_for(self.out)), self.out)
        if self.trace is not None:
            from pipesim.viz.trace import write_trace

            write_trace(made, self.trace)
        if self.timeline is not None:
            from pipesim.timeline_file import save_timeline

            save_timeline(made, self.timeline)


def require_outputs(**paths: Path | None) -> None:
    """Before long work begins: each can be written, and no two are one file. Raises CannotWrite, SameFile."""
    taken: dict[str, str] = {}
    for name, path in paths.items():
        if path is None:
            continue
        require_writable(path)
        real = os.path.realpath(path)
        option = name.replace("_", "-")
        if real in taken and not _is_special(real):
            raise SameFile(taken[real], option, str(path))
        taken[real] = option


def _is_special(path: str) -> bool:
    """A pipe or a device such as /dev/null, which takes several outputs."""
    return os.path.exists(path) and not os.path.isfile(path)
