"""Streams of requests: when each arrives, how long its prompt is and how many tokens it asks for."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipesim.errors import PipesimError
from pipesim.files import read_text

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
_ALIASES = {
    "arrival_s": ("arrival_s", "arrival", "timestamp", "time", "arrived_at"),
    "prompt_tokens": ("prompt_tokens", "prompt", "input", "contexttokens", "num_prefill_tokens", "input_length"),
    "output_tokens": ("output_tokens", "output", "generatedtokens", "num_decode_tokens", "output_length"),
}
MOST_REQUESTS = 10_000_000


@dataclass(eq=False)
class BadRequests(PipesimError):
    """A stream of requests that cannot be served as given."""

    source: str
    problem: str
    works: str

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}; {self.works}"


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in order of arrival.

    concurrency: a closed loop: so many requests are always there, and the next one comes when one is done; arrivals
    are then not used.
    """

    arrival_s: Floats
    prompt: Ints
    """Tokens."""
    output: Ints
    """Tokens, at least 1."""
    concurrency: int | None = None

    def __len__(self) -> int:
        return len(self.prompt)

    def part(self, index: int, of: int) -> Requests:
        """Every `of`-th request from number `index` on: what a round-robin balancer sends to one replica."""
        clients = None if self.concurrency is None else max(1, self.concurrency // of)
        return Requests(self.arrival_s[index::of], self.prompt[index::of], self.output[index::of], clients)


@dataclass(frozen=True)
class Lengths:
    """How lengths vary: log-normal with this mean, of which `spread` is the standard deviation over the mean."""

    mean: float
    spread: float = 0.0

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """`count` lengths of at least one token."""
        if self.spread <= 0:
            return np.full(count, max(1, round(self.mean)), np.int64)
        variance = np.log1p(self.spread**2)
        values = random.lognormal(np.log(self.mean) - variance / 2, np.sqrt(variance), count)
        return np.maximum(1, np.rint(values)).astype(np.int64)


def poisson(
    *, rate: float, duration_s: float, prompt: Lengths, output: Lengths, seed: int = 0, most: int = 0
) -> Requests:
    """Requests that arrive at random, `rate` a second on average, for `duration_s`.

    most: tokens of prompt and output together that a drawn request is cut to; 0: as drawn.
    """
    if rate <= 0 or duration_s <= 0:
        raise BadRequests(f"rate {rate:g}/s for {duration_s:g} s", "both must be more than 0", "e.g. 3/s for 10min")
    expected = rate * duration_s
    if expected > MOST_REQUESTS:
        works = f"at most {MOST_REQUESTS:,} work"
        raise BadRequests(f"rate {rate:g}/s for {duration_s:g} s", f"{expected:,.0f} requests", works)
    random = np.random.default_rng(seed)
    count = max(1, int(random.poisson(expected)))  # a stream without a request has no figures
    arrivals = np.sort(random.uniform(0.0, duration_s, count))
    prompts, outputs = prompt.draw(count, random), output.draw(count, random)
    if most:
        outputs = np.minimum(outputs, max(1, most // 2))
        prompts = np.minimum(prompts, most - outputs)
    return Requests(arrivals, prompts, outputs)


def at_once(*, count: int, prompt: int, output: int, concurrency: int | None = None) -> Requests:
    """Equal requests that are all there at the start, or of which `concurrency` are there at any time.

    Raises BadRequests.
    """
    if not 1 <= count <= MOST_REQUESTS:
        raise BadRequests(f"{count} requests", "not a number that can be simulated", f"1 to {MOST_REQUESTS:,} work")
    if prompt < 1 or output < 1:
        raise BadRequests(
            f"prompts of {prompt} tokens, answers of {output}", "not something to serve", "1 or more work"
        )
    zeros = np.zeros(count)
    return Requests(zeros, np.full(count, prompt, np.int64), np.full(count, output, np.int64), concurrency)


def read_requests(path: Path) -> Requests:
    """A CSV file with a header: arrival_s, prompt_tokens, output_tokens (or the names of public traces).

    Raises CannotRead, BadRequests.
    """
    lines = list(csv.reader(io.StringIO(read_text(path))))
    if not lines:
        raise BadRequests(str(path), "is empty", f"expected a header {','.join(COLUMNS)} and a line per request")
    columns = [_column(str(path), lines[0], name) for name in COLUMNS]
    rows = [_numbers(str(path), number, line, columns) for number, line in enumerate(lines[1:], start=2) if line]
    if not rows:
        raise BadRequests(str(path), "has no request", "expected at least one line after the header")
    table = np.array(rows)
    table = table[np.argsort(table[:, 0], kind="stable")]
    return Requests(table[:, 0] - table[0, 0], table[:, 1].astype(np.int64), table[:, 2].astype(np.int64))


def _column(source: str, header: Sequence[str], name: str) -> int:
    words = [word.strip().lower() for word in header]
    for alias in _ALIASES[name]:
        if alias in words:
            return words.index(alias)
    raise BadRequests(source, f"no column {name!r} in {', '.join(header)[:80]}", f"expected {', '.join(COLUMNS)}")


def _numbers(source: str, line_number: int, line: Sequence[str], columns: Sequence[int]) -> tuple[float, int, int]:
    try:
        arrival, prompt, output = (float(line[column]) for column in columns)
    except (ValueError, IndexError):
        raise BadRequests(f"{source}, line {line_number}", "not three numbers", "e.g. 0.25,512,128") from None
    lengths = (prompt, output)
    if not np.isfinite(arrival) or any(not length.is_integer() or not 1 <= length < 1 << 31 for length in lengths):
        raise BadRequests(
            f"{source}, line {line_number}",
            f"arrival {arrival:g}, prompt {prompt:g}, output {output:g}",
            "a time in seconds and whole numbers of at least 1 token work",
        )
    return arrival, int(prompt), int(output)
