"""Requests through one instance of a served model: continuous batching over a pipeline, as a loop over events.

A group of requests is at one place at a time: its step passes the stages one after the other, the sampled tokens go
back to the first stage, and only then can its next step start. Several groups fill the pipeline. An event is the
moment at which a group may make up its next step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from pipesim.serving.batching import Batcher
from pipesim.serving.group import Rules, Step
from pipesim.serving.instance import Instance
from pipesim.serving.requests import Requests

Progress = Callable[[int, float], None]


@dataclass
class Steps:
    """What each step was: one entry a step in every list."""

    group: list[int] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    """On the first stage."""
    end_s: list[float] = field(default_factory=list)
    """On the last stage, when its tokens are there."""
    decoding: list[int] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    """Requests in all groups."""
    waiting: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    """Blocks of cache in use."""


@dataclass(frozen=True, eq=False)
class Run:
    """What happened: to every request, in every step, on every stage."""

    requests: Requests
    batcher: Batcher
    steps: Steps
    stages_s: list[list[float]]
    """Start and end on each stage, in turn, of the first steps that were to be kept."""
    arrived_s: list[float]
    busy_s: list[float]
    """Of each stage."""
    comm_s: float
    """Of which tensor-parallel communication, mean over stages."""


def run(
    requests: Requests, instance: Instance, rules: Rules, *, progress: Progress | None = None, keep: int = 0
) -> Run:
    """Serve all requests.

    progress: called now and then with the number of requests done and the time reached, in seconds.
    keep: of so many first steps the times on every stage are kept, for a chart.
    """
    loop = _Loop(requests, instance, rules, keep)
    told = 0
    while loop.batcher.done < len(requests):
        loop.go_on()
        if progress is not None and loop.batcher.done - told >= 500:
            told = loop.batcher.done
            progress(told, loop.now)
    return Run(requests, loop.batcher, loop.steps, loop.kept, loop.arrived_s, loop.busy_s, loop.comm_s)


class _Loop:
    """The queue of events and what they change."""

    def __init__(self, requests: Requests, instance: Instance, rules: Rules, keep: int) -> None:
        self.instance, self.keep = instance, keep
        self.batcher = Batcher(requests, rules, instance.groups)
        self.closed = requests.concurrency is not None
        self.arrived_s: list[float] = requests.arrival_s.tolist()
        self.count = len(requests)
        self.next = 0  # request to arrive
        self.now = 0.0
        self.free_s = [0.0] * len(instance.stages)
        self.busy_s = [0.0] * len(instance.stages)
        self.comm_s = 0.0
        self.events: list[tuple[float, int, int]] = []  # when, a number that keeps the order, group
        self.pushed = 0
        self.idle = list(range(instance.groups))
        self.ends = [-1.0] * instance.groups  # of the step under way; -1: none
        self.steps = Steps()
        self.kept: list[list[float]] = []
        if requests.concurrency is not None:
            self._arrive_now(requests.concurrency, 0.0)
            self._wake(0.0)

    def go_on(self) -> None:
        """The next event: a group makes up a step, or a request arrives where a group has nothing to do."""
        if self.idle and not self.closed and self.next < self.count:
            arrival = self.arrived_s[self.next]
            if not self.events or arrival < self.events[0][0]:
                self._arrive_until(arrival)
                self._wake(arrival)
                return
        assert self.events, "requests wait, and nothing will ever happen"
        self.now, _, group = heappop(self.events)
        self._arrive_until(self.now)
        if self.ends[group] >= 0:
            done = self.batcher.finish(group, self.ends[group])
            if self.closed and done:
                self._arrive_now(done, self.ends[group])
            self.ends[group] = -1.0
        if self.free_s[0] > self.now:  # another group's step has the first stage
            self._push(self.free_s[0], group)
            return
        step = self.batcher.make_up(group, self.now)
        if step is None:
            self.idle.append(group)
            if not self.events and self.batcher.waiting:
                self._wake(self.now)
            return
        self._log(group, step)
        self._pass_through(group, step)
        if self.batcher.waiting:
            self._wake(self.now)

    def _wake(self, time: float) -> None:
        """Let all idle groups look at the queue, those with the fewest requests first."""
        for group in sorted(self.idle, key=lambda number: (self.batcher.groups[number].requests, number)):
            self._push(max(time, self.free_s[0]), group)
        self.idle.clear()

    def _push(self, time: float, group: int) -> None:
        self.pushed += 1
        heappush(self.events, (time, self.pushed, group))

    def _arrive_until(self, time: float) -> None:
        if self.closed:
            return
        while self.next < self.count and self.arrived_s[self.next] <= time:
            self.batcher.waiting.append(self.next)
            self.next += 1

    def _arrive_now(self, count: int, time: float) -> None:
        for request in range(self.next, min(self.next + count, self.count)):
            self.arrived_s[request] = time
            self.batcher.waiting.append(request)
        self.next = min(self.next + count, self.count)

    def _pass_through(self, group: int, step: Step) -> None:
        """Run a step on all stages in turn; no step overtakes another."""
        instance, at = self.instance, self.now
        times: list[float] = []
        for stage, seconds in enumerate(instance.seconds(step)):
            if stage:
                at += float(instance.hops_s[stage - 1][step.tokens])
            at = max(at, self.free_s[stage])
            times.append(at)
            at += seconds
            times.append(at)
            self.free_s[stage] = at
            self.busy_s[stage] += seconds
        self.comm_s += instance.communication(step)
        self.ends[group] = at
        self.steps.end_s.append(at)
        if len(self.kept) < self.keep:
            self.kept.append(times)
        self._push(at + instance.back_s, group)

    def _log(self, group: int, step: Step) -> None:
        steps, batcher = self.steps, self.batcher
        steps.group.append(group)
        steps.start_s.append(self.now)
        steps.decoding.append(step.decoding)
        steps.prompt_tokens.append(step.prompt_tokens)
        steps.running.append(batcher.running)
        steps.waiting.append(len(batcher.waiting))
        steps.blocks.append(batcher.cache.used)
