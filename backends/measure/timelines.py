"""From what each rank has noted of a step to one timeline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pipesim.backends.batch import Microbatches
from pipesim.backends.execute.runner import Runner, StepResult
from pipesim.backends.memory import HeldBytes, device_peak_bytes, reset_device_peak
from pipesim.ir.action import Kind
from pipesim.ir.program import Program
from pipesim.timeline import MemoryTrace, Source, Timeline


@dataclass(frozen=True)
class RankRecord:
    """One rank's step, on rank 0's clock, in nanoseconds.

    begin, end: by operation. posted, over: of transfers, by operation (over 0: nobody noted).
    held: after an action. base_bytes: weights, gradients and optimizer state.
    """

    began: int
    begin: dict[int, int]
    end: dict[int, int]
    posted: dict[int, int]
    over: dict[int, int]
    loss: float = 0.0
    held: dict[int, HeldBytes] = field(default_factory=dict)
    base_bytes: int = 0
    device_peak_bytes: int | None = None


def timed_step(runner: Runner, batch: Microbatches, *, offset_ns: int = 0, base_bytes: int = 0) -> RankRecord:
    """One step of all ranks, begun together. `offset_ns`: of this rank's clock."""
    device = runner.transport.wires.device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        reset_device_peak(device)
    dist.barrier()
    began = time.perf_counter_ns()
    result = runner.run(batch)
    return record(runner, result, began + offset_ns, offset_ns, base_bytes)


def record(runner: Runner, result: StepResult, began: int, offset_ns: int, base_bytes: int) -> RankRecord:
    """What a step that has just been run took."""
    device = runner.transport.wires.device
    marks = runner.timer.nanoseconds([*result.begin.values(), *result.end.values()])
    ops = list(result.begin)
    begins, ends = marks[: len(ops)], marks[len(ops) :]
    times = runner.transport.times
    return RankRecord(
        began,
        {op: at + offset_ns for op, at in zip(ops, begins, strict=True)},
        {op: at + offset_ns for op, at in zip(ops, ends, strict=True)},
        {op: at.posted + offset_ns for op, at in times.items()},
        {op: at.over + offset_ns for op, at in times.items() if at.over},
        result.loss,
        dict(result.held),
        base_bytes,
        device_peak_bytes(device) if device.type == "cuda" else None,
    )


def gather(mine: RankRecord) -> list[RankRecord] | None:
    """All ranks' records, on rank 0 (None elsewhere)."""
    found: list[RankRecord] | None = [mine] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, found, dst=0)
    return found


def assemble(program: Program, records: Sequence[RankRecord], *, source: Source = "measured") -> Timeline:
    """One timeline; its zero is when the first rank began.

    A transfer starts when both ends have asked for it, and ends on the receiving side when it was seen there.
    """
    zero = min(each.began for each in records)
    start, end = np.zeros(len(program)), np.zeros(len(program))
    for each in records:
        for op, at in each.begin.items():
            start[op], end[op] = (at - zero) * 1e-9, (each.end[op] - zero) * 1e-9
    posted = {op: at for each in records for op, at in each.posted.items()}
    over = {op: at for each in records for op, at in each.over.items()}
    for send in np.flatnonzero(program.ops.kind == Kind.SEND).tolist():
        receive = int(program.match[send])
        ready = max(posted[send], posted[receive])
        arrived = max(over.get(receive, ready), ready)
        left = min(max(over.get(send, arrived), ready), arrived)
        start[send] = start[receive] = (ready - zero) * 1e-9
        end[send], end[receive] = (left - zero) * 1e-9, (arrived - zero) * 1e-9
    facts: dict[str, Any] = {"losses": [each.loss for each in records]}
    peaks = [each.device_peak_bytes for each in records]
    if None not in peaks:
        facts["device_peak_bytes"] = peaks
    return Timeline(program, start, end, _memory(program, records, start, end), source, facts)


def assemble_with_memory(
    program: Program,
    records: Sequence[RankRecord],
    weighed: Sequence[RankRecord] | None,
    *,
    source: Source = "measured",
) -> Timeline:
    """One step's times with the memory of another step of the same program, in which bytes were noted."""
    timeline = assemble(program, records, source=source)
    if weighed is None:
        return timeline
    return replace(timeline, memory=_memory(program, weighed, timeline.start, timeline.end))


def _memory(program: Program, records: Sequence[RankRecord], start: np.ndarray, end: np.ndarray) -> MemoryTrace | None:
    if not any(each.held for each in records):
        return None
    times: list[float] = []
    changes: list[float] = []
    offsets = [0]
    for each in records:
        before = 0
        for op, bytes_held in each.held.items():
            held = bytes_held.total
            times.append(float(start[op] if held > before else end[op]))
            changes.append(float(held - before))
            before = held
        offsets.append(len(times))
    return MemoryTrace(
        np.asarray([float(each.base_bytes) for each in records]),
        np.asarray(offsets),
        np.asarray(times),
        np.asarray(changes),
    )
