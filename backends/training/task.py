"""What is trained and how, and what is known of it after: data that processes send each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pipesim.backends.checkpoint.saver import Checkpoints
from pipesim.backends.measure.timelines import RankRecord
from pipesim.backends.parallel.lines import Line
from pipesim.backends.parallel.rates import Rates
from pipesim.backends.parallel.report import Measured
from pipesim.backends.parallel.sources import ParallelSource
from pipesim.backends.stage import StageOptions
from pipesim.costs.layouts.layout import Layout
from pipesim.ir.program import Program


@dataclass(frozen=True)
class Keep:
    """What makes a job go on through failures. hang_s: longest time of one operation."""

    checkpoints: Checkpoints
    hang_s: float = 60.0


@dataclass(frozen=True)
class Training:
    """A training run at one layout; what a restart may change is `program`, `layout` and `stage`.

    steps: of the whole job, those before a restart too. samples: of one microbatch.
    rounds: runs of the program whose gradients add up to one step.
    metrics: a file that gets a line a step. save: a folder for the weights in Hugging Face's format.
    overlap: gradients are reduced behind other work. report: count every collective of the last step.
    keep: None for a run in one piece.
    """

    program: Program
    layout: Layout
    source: ParallelSource
    rates: Rates
    steps: int = 50
    samples: int = 1
    rounds: int = 1
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    stage: StageOptions = StageOptions()
    overlap: bool = True
    watch: bool = True
    report: bool = True
    metrics: Path | None = None
    save: str | None = None
    progress: bool = True
    keep: Keep | None = None

    @property
    def global_batch(self) -> int:
        """Samples of one step."""
        return self.layout.dp * self.rounds * self.program.schedule.microbatches * self.samples


@dataclass(frozen=True)
class Step:
    """What is known of one step, by all ranks. step: from 1."""

    step: int
    loss: float
    lr: float
    grad_norm: float | None
    step_s: float
    tokens_per_s: float

    def line(self) -> dict[str, float | int]:
        """What there is, by name."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Trained:
    """What rank 0 knows after a run. steps: since it was started last.

    records: of one of the last steps, by rank of pipeline 0; none where no step was left. measured: traffic of the
    last step, by pipeline rank. lines: of each dimension, what a message takes.
    """

    steps: list[Step]
    records: list[RankRecord]
    measured: list[Measured] | None
    lines: Mapping[str, Line]
