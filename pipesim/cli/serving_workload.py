"""The workload of a `pipesim serving` command line, and what it gives back as one object."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli.options.case import BadCase
from pipesim.serving.deployment import Deployment
from pipesim.serving.memory import largest_batch, memory_of
from pipesim.serving.pools import Pools
from pipesim.serving.requests import Lengths, Requests, at_once, poisson, read_requests
from pipesim.serving.serve import Service
from pipesim.serving.simulator import Progress

# Options that `serving` and `plan --serving` share.
Weights = Annotated[str, typer.Option("--weights", help="bf16, fp16, fp8, int8, fp4 or int4.")]
CacheFormat = Annotated[str, typer.Option("--cache", help="Numbers of the key/value cache: bf16, fp8, int8 or fp4.")]
EngineName = Annotated[str, typer.Option("--engine", help="vllm, sglang, trt-llm, … (see docs/serving.md).")]
Prompt = Annotated[str, typer.Option("--input", metavar="TOKENS[±SHARE]", help="Prompt: 512, or 512±0.5 (log-normal).")]
Output = Annotated[str, typer.Option("--output", metavar="TOKENS[±SHARE]", help="Tokens to make, in the same way.")]

_PER = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LENGTHS = re.compile(r"(\d+)(?:(?:±|\+-)(\d*\.?\d+))?")
_ROUNDS = 10  # requests of each client where --count is not given


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What was asked for: a batch, a trace, a rate or a number of clients."""

    prompt: Lengths
    output: Lengths
    duration_s: float
    seed: int = 0
    batch: int | None = None
    trace: Path | None = None
    rate: str | None = None
    clients: int | None = None
    count: int | None = None

    def describe(self) -> str:
        """In a line."""
        sizes = f"{self.prompt.mean:g} tokens in, {self.output.mean:g} out"
        if self.trace is not None:
            return f"requests of {self.trace}"
        if self.rate is not None:
            return f"{self.rate} requests for {self.duration_s:g} s, {sizes}"
        if self.clients is not None:
            return f"{self.clients} clients, {sizes}"
        return f"a batch of {self.batch}, {sizes}"


def stream_of(asked: Workload, most: int) -> Requests:
    """The requests of a workload, drawn ones cut to `most` tokens. Raises BadCase, BadRequests, CannotRead."""
    given = {"--batch": asked.batch, "--requests": asked.trace, "--rate": asked.rate, "--concurrency": asked.clients}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        problem = "no workload given" if not named else f"{' and '.join(named)} are several workloads"
        raise BadCase(problem, f"give one of {', '.join(given)}, e.g. --batch 32 or --rate 3/s")
    if asked.trace is not None:
        return read_requests(asked.trace)
    if asked.rate is not None:
        return poisson(
            rate=per_second("--rate", asked.rate), duration_s=asked.duration_s, prompt=asked.prompt,
            output=asked.output, seed=asked.seed, most=most,
        )  # fmt: skip
    count = asked.batch or asked.count or _ROUNDS * (asked.clients or 1)
    return at_once(
        count=count, prompt=round(asked.prompt.mean), output=round(asked.output.mean), concurrency=asked.clients
    )


def per_second(option: str, text: str) -> float:
    """A rate: 3/s, 100/min, 3. Raises BadCase."""
    number, slash, unit = text.strip().partition("/")
    try:
        value = float(number) / _PER[unit.strip() if slash else "s"]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 < value < float("inf"):
        raise BadCase(f"{option} {text}: not a rate above 0", "expected e.g. 3/s, 100/min or 500/h")
    return value


def lengths(option: str, text: str) -> Lengths:
    """Lengths: 512, or 512±0.5 for a spread of half the mean. Raises BadCase."""
    match = _LENGTHS.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise BadCase(f"{option} {text}: not a number of tokens", "expected e.g. 512, or 512±0.5")
    return Lengths(float(match[1]), float(match[2] or 0.0))


@contextmanager
def progress(count: int) -> Iterator[Progress | None]:
    """A line on the terminal that says how far a long run is; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def tell(done: int, now_s: float) -> None:
        print(f"\r{done:,} of {count:,} requests, {now_s:,.0f} s simulated", end="", file=sys.stderr, flush=True)

    yield tell
    print("\r\033[K", end="", file=sys.stderr, flush=True)


def run_json(target: Deployment | Pools, found: Service, asked: Workload) -> dict[str, Any]:
    """The stable object of --json."""
    decode = target.decode if isinstance(target, Pools) else target
    head = {
        "model": decode.model.name,
        "cluster": decode.cluster.name,
        "deployment": decode.describe(),
        "workload": asked.describe(),
        "gpus": target.gpus,
    }
    if isinstance(target, Pools):
        head["prefill"] = target.prefill.describe()
    return head | found.served.to_json() | {"memory": memory_json(decode, asked), "notes": list(notes(decode))}


def memory_json(deployment: Deployment, asked: Workload) -> dict[str, Any]:
    """Bytes on the fullest GPU of a stage, and the largest batch of the workload's mean lengths."""
    stages = memory_of(deployment)
    tokens = round(asked.prompt.mean + asked.output.mean)
    return {
        "weights_bytes": [stage.weights for stage in stages],
        "buffers_bytes": [stage.buffers for stage in stages],
        "cache_bytes": [stage.cache for stage in stages],
        "cache_token_bytes": [stage.token for stage in stages],
        "largest_batch": largest_batch(deployment, tokens),
    }


def notes(deployment: Deployment) -> tuple[str, ...]:
    """What the reader should know."""
    engine = deployment.engine
    return (
        "a step of one group passes the stages in turn; its tokens return to the first stage before its next step",
        "requests are dealt to replicas in turn",
        f"usual settings of {engine.name}: {'CUDA graphs' if engine.graph else 'kernels launched one by one'}, "
        f"{engine.all_reduce} all-reduce, {engine.cache_share:.0%} of free memory for the cache",
    )
