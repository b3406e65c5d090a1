"""Options for times that vary, and tables of what many sampled steps come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import typer

from pipesim.cli.options.case import Case
from pipesim.costs.costs import Costs
from pipesim.costs.lengths import attention_part, read_lengths, with_lengths
from pipesim.engine.durations import Durations, durations
from pipesim.engine.noise import BadNoise, Noise, parse_noise, slowed
from pipesim.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from pipesim.engine.samples import Samples, Spread

_SAMPLES = 1000
_MOST_PLACES = 12


@dataclass(frozen=True)
class VariationOptions:
    """The options that say how times vary, as given."""

    panel: ClassVar[str] = "Times that vary"

    jitter: Annotated[str | None, typer.Option("--jitter", help="Standard deviation of every time, e.g. 5%.")] = None
    straggler: Annotated[
        list[str] | None, typer.Option("--straggler", help="A slower rank or link: rank=3,x1.2 or link=0-1,x4.")
    ] = None
    lengths: Annotated[
        Path | None,
        typer.Option("--lengths", help="Tokens of each microbatch: a file, a line a step (--seq is usual)."),
    ] = None
    samples: Annotated[
        int | None, typer.Option("--samples", help=f"Steps to sample ({_SAMPLES} where times vary by chance).")
    ] = None
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the samples; the same gives the same figures.")] = 0


@dataclass(frozen=True, eq=False)
class Variation:
    """How times vary: costs of each step in turn, and noise on them. samples: 0 for no sampling."""

    costs: Sequence[Costs]
    noise: Noise
    samples: int
    seed: int


def variation(case: Case, given: VariationOptions, seq: int) -> Variation:
    """What the options say. Raises BadNoise, BadQuantity, BadLengths, CannotRead."""
    noise, samples = parse_noise(given.jitter, given.straggler or []), given.samples
    steps = [case.costs] if given.lengths is None else _of_lengths(case, given.lengths, seq)
    by_chance = noise.jitter > 0 or len(steps) > 1
    count = (_SAMPLES if by_chance else 0) if samples is None else samples
    if samples is not None and samples < 1:
        raise BadNoise(f"--samples {samples}", f"expected 1 or more, e.g. {_SAMPLES}")
    return Variation(steps, noise, count, given.seed)


def _of_lengths(case: Case, path: Path, seq: int) -> list[Costs]:
    """Costs of each step of a file. Without a model the usual length is the mean of the file."""
    lengths = read_lengths(path, microbatches=case.schedule.microbatches)
    if case.estimate is None:
        return [with_lengths(case.costs, row, usual=float(np.mean(lengths))) for row in lengths]
    attention = attention_part(case.estimate, case.schedule.placement)
    return [with_lengths(case.costs, row, usual=seq, attention=attention) for row in lengths]


def varied(case: Case, how: Variation) -> tuple[Case, Durations | None]:
    """The case of the first step, and its times with stragglers in them, if there are any."""
    first = replace(case, costs=how.costs[0])
    if not how.noise.stragglers:
        return first, None
    return first, slowed(case.program, durations(case.program, first.costs), how.noise)


def sampled(case: Case, how: Variation) -> Samples | None:
    """The sampled steps, if any were asked for."""
    if how.samples == 0:
        return None
    from pipesim.engine.samples import sample  # numba takes its time to be imported

    return sample(case.program, how.costs, how.noise, samples=how.samples, seed=how.seed)


def sample_tables(found: Samples) -> list[Table]:
    """Spread of step time and bubbles, and where the critical path runs."""
    from rich.table import Table

    spread = Table(title=f"{len(found.step_time_s)} sampled steps", title_justify="left")
    for head in ("", "mean", "p5", "median", "p95"):
        spread.add_column(head, justify="right" if head else "left")
    spread.add_row("step time", *map(format_seconds, _numbers(found.step_time)))
    for rank, bubble in enumerate(found.bubble_of_ranks[:_MOST_PLACES]):
        spread.add_row(f"bubble fraction, rank {rank}", *(f"{value:.2%}" for value in _numbers(bubble)))
    critical = Table(title="critical path", title_justify="left")
    for head in ("", "part of the step", "longest of its kind in"):
        critical.add_column(head, justify="right" if head else "left")
    often = found.critical_often
    for place, part in sorted(found.critical_part.items(), key=lambda one: -one[1])[:_MOST_PLACES]:
        critical.add_row(place, f"{part:.1%}", f"{often[place]:.1%} of steps")
    return [spread, critical]


def _numbers(spread: Spread) -> tuple[float, float, float, float]:
    return spread.mean, spread.p5, spread.p50, spread.p95
