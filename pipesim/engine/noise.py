"""Times that vary: jitter on every operation, ranks and links that are slower than the others."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from pipesim.costs.costs import Floats
from pipesim.engine.durations import Durations
from pipesim.errors import PipesimError
from pipesim.ir.action import Kind
from pipesim.ir.program import Program
from pipesim.units import parse_fraction

_STRAGGLER = re.compile(r"(?:rank=(\d+)|link=(\d+)-(\d+)),\s*x(\d+(?:\.\d*)?|\.\d+)")
_MOST_JITTER = 2.0


@dataclass(eq=False)
class BadNoise(PipesimError):
    """Jitter or a straggler that cannot be."""

    given: str
    reason: str

    def __str__(self) -> str:
        return f"{self.given}: {self.reason}"


@dataclass(frozen=True)
class Straggler:
    """A rank whose compute, or a link (source, target) whose transfers, take `factor` times as long."""

    factor: float
    rank: int | None = None
    link: tuple[int, int] | None = None


@dataclass(frozen=True)
class Noise:
    """jitter: standard deviation of every time, as a part of its mean; the means stay."""

    jitter: float = 0.0
    stragglers: tuple[Straggler, ...] = ()


def parse_noise(jitter: str | float | None, stragglers: tuple[str, ...] | list[str] = ()) -> Noise:
    """Read `5%`, and `rank=3,x1.2` or `link=0-1,x4`. Raises BadNoise, BadQuantity."""
    part = 0.0 if jitter is None else parse_fraction(jitter, name="jitter")
    if part > _MOST_JITTER:
        raise BadNoise(f"jitter {jitter}", f"at most {_MOST_JITTER:.0%} of a time, e.g. 5%")
    return Noise(part, tuple(_straggler(text) for text in stragglers))


def _straggler(text: str) -> Straggler:
    found = _STRAGGLER.fullmatch(text.strip())
    if found is None:
        raise BadNoise(f"straggler {text!r}", "expected a rank or a link and a factor: rank=3,x1.2 or link=0-1,x4")
    rank, source, target, factor = found.groups()
    if float(factor) <= 0:
        raise BadNoise(f"straggler {text!r}", "the factor must be more than 0, e.g. x1.2")
    if rank is not None:
        return Straggler(float(factor), rank=int(rank))
    return Straggler(float(factor), link=(int(source), int(target)))


def slowed(program: Program, timing: Durations, noise: Noise) -> Durations:
    """Times with the stragglers in them. Raises BadNoise for a rank or link that the program does not have."""
    factor = np.ones(len(program))
    for straggler in noise.stragglers:
        factor[_of(program, straggler)] *= straggler.factor
    return times(timing, factor)


def _of(program: Program, straggler: Straggler) -> np.ndarray:
    """Which operations a straggler slows down."""
    kind = program.ops.kind
    transfers = (kind == Kind.SEND) | (kind == Kind.RECV)
    if straggler.rank is not None:
        if straggler.rank >= program.ranks:
            raise BadNoise(f"straggler rank {straggler.rank}", f"there are ranks 0 to {program.ranks - 1}")
        return np.flatnonzero((program.rank == straggler.rank) & (program.is_compute | (kind == Kind.STEP)))
    assert straggler.link is not None
    source, target = straggler.link
    sends = np.flatnonzero((kind == Kind.SEND) & (program.rank == source) & (program.peer == target))
    if not len(sends):
        pairs = sorted({*zip(program.rank[transfers].tolist(), program.peer[transfers].tolist(), strict=True)})
        some = ", ".join(f"{one}-{other}" for one, other in pairs[:6])
        raise BadNoise(f"straggler link {source}-{target}", f"nothing is sent there; links in use: {some or 'none'}")
    return np.concatenate([sends, program.match[sends]])


def jittered(program: Program, timing: Durations, noise: Noise, draw: np.random.Generator) -> Durations:
    """Times with jitter: log-normal, so that none is negative, and with the same mean as without."""
    if noise.jitter == 0:
        return timing
    spread = np.sqrt(np.log1p(noise.jitter**2))
    factor = np.exp(spread * draw.standard_normal(len(program)) - spread**2 / 2)
    second = np.flatnonzero(program.ops.fused)
    factor[second] = factor[second - 1]  # a pair runs as one
    receives = np.flatnonzero(program.ops.kind == Kind.RECV)
    factor[receives] = factor[program.match[receives]]  # and so does a message
    return times(timing, factor)


def times(timing: Durations, factor: Floats) -> Durations:
    """Every operation's time multiplied by a factor of its own."""
    return replace(
        timing,
        seconds=timing.seconds * factor,
        size_bytes=timing.size_bytes * factor,
        latency_s=timing.latency_s * factor,
    )
