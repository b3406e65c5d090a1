"""The search for the best layouts: best bound first, until no bound left is below the worst of the best found.

So the answer is that of trying everything, whatever order workers finish in.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from pipesim.plan.bounds import Times, choice_bound_s, choice_memory_bytes, core_bound_s, held, times
from pipesim.plan.evaluate import Outcome, evaluate
from pipesim.plan.request import Request
from pipesim.plan.space import Choice, Core, choices, cores

_ROUNDING = 1e-9  # a bound is trusted to this part
_CHUNK = 8  # choices sent to a worker at a time
_AHEAD = 2  # chunks under way for each worker


@dataclass
class Counts:
    """How many choices there are, and what became of them."""

    enumerated: int = 0
    too_large: int = 0
    """Excluded by memory, before or after they were priced."""
    bounded: int = 0
    """Excluded by the bound on their step time."""
    unsuitable: int = 0
    """Numbers that the family, or the layout's rules, do not allow."""
    simulated: int = 0


@dataclass(frozen=True, eq=False)
class Found:
    """The best choices, best first; `complete` unless the search was interrupted.

    seen: all that fit and were simulated, in no order (of those that are not among the best the memory leaves out
    messages). smallest: the choice that came nearest to fit, where none does.
    """

    best: tuple[Outcome, ...]
    counts: Counts
    complete: bool
    seen: tuple[Outcome, ...] = ()
    smallest: Outcome | None = None


Progress = Callable[[Counts, Outcome | None], None]


def search(
    request: Request,
    *,
    top: int = 10,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Progress = lambda counts, best: None,
) -> Found:
    """The `top` choices of least step time that fit in memory.

    executor: where choices are simulated, `workers` at a time; None for here. progress is called after each round;
    Ctrl-C ends the search with the best so far. Raises ImpossibleRequest.
    """
    run = _Search(request, top, progress)
    try:
        if executor is None:
            run.here()
        else:
            run.on(executor, workers)
        complete = True
    except KeyboardInterrupt:
        complete = False
    run.counts.enumerated = run.all_choices()
    run.counts.bounded = run.counts.enumerated - run.counts.too_large - run.counts.unsuitable - run.counts.simulated
    return Found(tuple(run.best), run.counts, complete, tuple(run.seen), run.smallest if not run.best else None)


@dataclass
class _Search:
    request: Request
    top: int
    progress: Progress
    counts: Counts = field(default_factory=Counts)
    best: list[Outcome] = field(default_factory=list)
    seen: list[Outcome] = field(default_factory=list)
    smallest: Outcome | None = None

    def __post_init__(self) -> None:
        self.order = count()
        self.cores: dict[Core, Times] = {core: times(self.request, core) for core in cores(self.request)}
        self.sizes: dict[Core, int] = {}
        self.heap: list[tuple[float, int, Core | Choice]] = [
            (core_bound_s(self.request, core, least), next(self.order), core) for core, least in self.cores.items()
        ]
        heapq.heapify(self.heap)

    @property
    def slowest_s(self) -> float:
        """What a choice must not exceed to be among the best."""
        return self.best[-1].step_time_s if len(self.best) == self.top else float("inf")

    def here(self) -> None:
        for chunk in iter(lambda: self.next_chunk(1), []):
            for outcome in (evaluate(self.request, choice, self.slowest_s) for choice in chunk):
                self.take(outcome)
            self.progress(self.counts, self.best[0] if self.best else None)

    def on(self, executor: Executor, workers: int) -> None:
        payload = pickle.dumps(self.request)
        under_way: set[Future[list[Outcome]]] = set()
        try:
            while True:
                while len(under_way) < workers * _AHEAD and (chunk := self.next_chunk(_CHUNK)):
                    under_way.add(executor.submit(evaluate_all, payload, chunk, self.slowest_s))
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    for outcome in future.result():
                        self.take(outcome)
                self.progress(self.counts, self.best[0] if self.best else None)
        finally:
            for future in under_way:
                future.cancel()

    def next_chunk(self, size: int) -> list[Choice]:
        """The choices of least bound that could still be among the best."""
        chunk: list[Choice] = []
        while self.heap and len(chunk) < size and self.heap[0][0] <= self.slowest_s * (1 + _ROUNDING):
            _, _, node = heapq.heappop(self.heap)
            if isinstance(node, Choice):
                chunk.append(node)
            else:
                self.expand(node)
        return chunk

    def expand(self, core: Core) -> None:
        """Put the choices of a core on the heap, but for those that cannot fit or be among the best."""
        least, bytes_of = self.cores[core], {}
        for choice in self.choices_of(core):
            bound = choice_bound_s(self.request, choice, least)
            if bound > self.slowest_s * (1 + _ROUNDING):
                continue
            replicas = (choice.dp, choice.zero)
            if replicas not in bytes_of:
                bytes_of[replicas] = held(self.request, choice)
            size = choice_memory_bytes(self.request, choice, bytes_of[replicas])
            if size > self.request.memory_bytes:
                self.take(Outcome(choice, "too large", peak_bytes=size))
            else:
                heapq.heappush(self.heap, (bound, next(self.order), choice))

    def choices_of(self, core: Core) -> Iterator[Choice]:
        found = 0
        for choice in choices(self.request, core):
            found += 1
            yield choice
        self.sizes[core] = found

    def all_choices(self) -> int:
        return sum(
            self.sizes[core] if core in self.sizes else sum(1 for _ in choices(self.request, core))
            for core in self.cores
        )

    def take(self, outcome: Outcome) -> None:
        """Count an outcome, and keep it if it is among the best."""
        if outcome.verdict == "too large":
            self.counts.too_large += 1
            if self.smallest is None or outcome.peak_bytes < self.smallest.peak_bytes:
                self.smallest = outcome
        elif outcome.verdict == "unsuitable":
            self.counts.unsuitable += 1
        else:
            self.counts.simulated += 1
            self.seen.append(outcome)
            if outcome.verdict == "fits":
                self.best = sorted([*self.best, outcome], key=lambda one: one.rank)[: self.top]


def evaluate_all(payload: bytes, chunk: list[Choice], slowest_s: float) -> list[Outcome]:
    """What a worker does. The request comes as bytes and is opened once, so that caches keyed by it last."""
    request = _opened(payload)
    return [evaluate(request, choice, slowest_s) for choice in chunk]


@lru_cache(maxsize=2)
def _opened(payload: bytes) -> Request:
    request = pickle.loads(payload)
    assert isinstance(request, Request)
    return request
