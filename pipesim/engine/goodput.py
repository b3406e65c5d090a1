"""Goodput: the share of days of training that becomes progress, with failures, restarts and checkpoints.

Failures of a GPU are memoryless, so those of a job of n GPUs come at rate n / MTBF. A run is simulated from
failure to failure: work in intervals between checkpoints, then detection, restart, and the work since the
last checkpoint that was complete done again. Failures may strike while detecting or restarting, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipesim.errors import PipesimError

Floats = NDArray[np.float64]
CAUSES = ("lost work", "checkpoints", "detection", "restart")
_MOST_FAILURES = 50_000_000  # of one simulation, over all samples: memory and seconds
_MOST_IN_A_RUN = 100_000  # of one run: each is a step of the simulation


@dataclass(eq=False)
class TooManyFailures(PipesimError):
    """A job that fails so often that it cannot be simulated, or never gets anywhere."""

    between_s: float
    in_a_run: float
    samples: int

    def __str__(self) -> str:
        return (
            f"the job fails every {self.between_s:.3g} s, {self.in_a_run:.3g} times in each of {self.samples} runs "
            f"(at most {_MOST_IN_A_RUN:,}, {_MOST_FAILURES:,} in all): "
            "fewer GPUs, a longer --mtbf, or fewer --days or --samples work"
        )


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """A long job. All times in seconds.

    mtbf_s: mean time between failures of one GPU. checkpoint_every_s: work between two checkpoints.
    checkpoint_stall_s: how long training stands still for one. checkpoint_write_s: until it is complete,
    counted from its beginning (asynchronous: longer than the stall; training goes on meanwhile).
    detect_s: until a failure is noticed. restart_s: until training goes on, loading included.
    """

    gpus: int
    mtbf_s: float
    checkpoint_every_s: float
    checkpoint_stall_s: float = 10.0
    checkpoint_write_s: float = 60.0
    detect_s: float = 60.0
    restart_s: float = 300.0

    @property
    def between_failures_s(self) -> float:
        """Mean time between failures of the whole job."""
        return self.mtbf_s / self.gpus

    @property
    def written_late_s(self) -> float:
        """How long training has already gone on when a checkpoint is complete."""
        return max(0.0, self.checkpoint_write_s - self.checkpoint_stall_s)


@dataclass(frozen=True, eq=False)
class Goodput:
    """What many simulated runs came to.

    goodput: mean share of time that became progress. interval: of 95 % for that mean. spread: 5th and
    95th percentile of single runs. lost_s: mean seconds of one run by cause. failures: mean of one run.
    """

    goodput: float
    interval: tuple[float, float]
    spread: tuple[float, float]
    lost_s: Mapping[str, float]
    failures: float
    total_s: float
    runs: Floats


def simulate_goodput(job: Reliability, *, duration_s: float, samples: int = 200, seed: int = 0) -> Goodput:
    """Simulate `samples` runs of `duration_s`, reproducibly. Raises TooManyFailures."""
    in_a_run = duration_s / job.between_failures_s + 1
    if in_a_run > _MOST_IN_A_RUN or samples * in_a_run > _MOST_FAILURES:
        raise TooManyFailures(job.between_failures_s, in_a_run, samples)
    draw = np.random.default_rng(seed)
    clock, progress = np.zeros(samples), np.zeros(samples)
    lost = {cause: np.zeros(samples) for cause in CAUSES}
    failures, running = 0, np.ones(samples, np.bool_)
    starting = np.zeros(samples, np.bool_)  # in detection and restart rather than at work
    while running.any():
        until = draw.exponential(job.between_failures_s, samples)
        left = duration_s - clock
        ends = until >= left
        span = np.where(running, np.minimum(until, left), 0.0)
        span = _recover(job, span, starting, lost)
        worked, saved, stalls = _work(job, span)
        progress += np.where(ends, worked, saved)
        lost["checkpoints"] += stalls
        lost["lost work"] += np.where(ends, 0.0, worked - saved)
        clock += np.where(running, np.minimum(until, left), 0.0)
        failures += int((running & ~ends).sum())
        starting[:] = True
        running &= ~ends
    return _summary(progress / duration_s, lost, failures / samples, duration_s)


def _recover(job: Reliability, span: Floats, starting: NDArray[np.bool_], lost: dict[str, Floats]) -> Floats:
    """Take detection and restart off the time until the next failure; what is left is work."""
    for cause, wanted in (("detection", job.detect_s), ("restart", job.restart_s)):
        spent = np.where(starting, np.minimum(span, wanted), 0.0)
        lost[cause] += spent
        span = span - spent
    return span


def _work(job: Reliability, span: Floats) -> tuple[Floats, Floats, Floats]:
    """Of a span of work: seconds worked, seconds of it in a complete checkpoint, seconds standing still."""
    every, stall = job.checkpoint_every_s, job.checkpoint_stall_s
    cycle = every + stall
    cycles = np.floor(span / cycle)
    rest = span - cycles * cycle
    worked = cycles * every + np.minimum(rest, every)
    complete = np.floor(np.maximum(0.0, span - job.written_late_s) / cycle)
    return worked, complete * every, span - worked


def _summary(shares: Floats, lost: Mapping[str, Floats], failures: float, total_s: float) -> Goodput:
    mean = float(shares.mean())
    half = 1.96 * float(shares.std(ddof=1)) / math.sqrt(len(shares)) if len(shares) > 1 else math.inf
    low, high = (float(value) for value in np.percentile(shares, (5, 95)))
    return Goodput(
        mean,
        (max(0.0, mean - half), min(1.0, mean + half)),
        (low, high),
        {cause: float(values.mean()) for cause, values in lost.items()},
        failures,
        total_s,
        shares,
    )


def expected_goodput(job: Reliability) -> float:
    """Expected share of time that becomes progress in an endless run, for checkpoints that stall until complete.

    Daly 2006, section 2: a segment of work τ and checkpoint δ takes M e^(R/M) (e^((τ+δ)/M) - 1) on average,
    with M between failures of the job and R from a failure until work goes on.
    """
    between = job.between_failures_s
    segment = (job.checkpoint_every_s + job.checkpoint_stall_s) / between
    recovery = (job.detect_s + job.restart_s) / between
    if segment + recovery > 500:
        return 0.0
    return job.checkpoint_every_s / (between * math.exp(recovery) * math.expm1(segment))


def young_daly_s(job: Reliability) -> float:
    """First-order best interval between checkpoints: √(2δM) (Young 1974; Daly 2006 subtracts δ)."""
    return math.sqrt(2 * job.checkpoint_stall_s * job.between_failures_s)


def best_interval_s(job: Reliability) -> float:
    """Interval with the highest expected goodput, by golden section; late completion counts as lost work.

    An asynchronous checkpoint that is complete only after a while loses that while of work at each failure,
    whatever the interval, so it does not move the best one.
    """
    low, high = math.log(1e-3), math.log(20 * max(young_daly_s(job), 1.0) + job.between_failures_s)
    ratio = (math.sqrt(5) - 1) / 2

    def value(log_every: float) -> float:
        return expected_goodput(replace(job, checkpoint_every_s=math.exp(log_every)))

    for _ in range(100):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        if value(first) < value(second):
            low = first
        else:
            high = second
    return math.exp((low + high) / 2)
