"""How latencies grow with the rate of requests: one run a rate, until the system can do no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipesim.serving.deployment import Deployment
from pipesim.serving.pools import Pools, serve_apart
from pipesim.serving.requests import Lengths, Requests, poisson
from pipesim.serving.results import Served
from pipesim.serving.serve import Service, serve
from pipesim.serving.simulator import Progress


@dataclass(frozen=True, eq=False)
class Load:
    """One point of a load curve."""

    rate: float
    """Requests a second."""
    served: Served


def run_on(
    target: Deployment | Pools, requests: Requests, *, progress: Progress | None = None, keep: int = 0
) -> Service:
    """Serve requests on one deployment or on two pools."""
    if isinstance(target, Pools):
        return serve_apart(target, requests, progress=progress, keep=keep)
    return serve(target, requests, progress=progress, keep=keep)


def most_tokens(target: Deployment | Pools) -> int:
    """Tokens that drawn requests are cut to: the model's context."""
    return target.decode.most_context if isinstance(target, Pools) else target.most_context


def load_curve(
    target: Deployment | Pools,
    rates: Sequence[float],
    *,
    duration_s: float,
    prompt: Lengths,
    output: Lengths,
    seed: int = 0,
) -> tuple[Load, ...]:
    """Figures at each rate, lowest first."""
    points = []
    for rate in sorted(rates):
        stream = poisson(
            rate=rate, duration_s=duration_s, prompt=prompt, output=output, seed=seed, most=most_tokens(target)
        )
        points.append(Load(rate, run_on(target, stream).served))
    return tuple(points)
