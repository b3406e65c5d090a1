"""Scores of predictions against measured runs, source by source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One measured run and the step time predicted for it, in seconds."""

    row: Row
    step_time_s: float
    memory_gib: float | None = None

    @property
    def error(self) -> float:
        """Predicted over measured step time, minus 1."""
        return self.step_time_s / self.row["measured"]["step_time_s"] - 1

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured memory, minus 1; None where it was not measured."""
        measured = self.row["measured"].get("memory_gb")
        return None if not measured or self.memory_gib is None else self.memory_gib / measured - 1


@dataclass(frozen=True)
class Score:
    """Of one source. Errors are absolute; bias is the median signed error; tau is Kendall's, of layouts; clear: the
    same of pairs measured more than 5 % apart, which repeats of one configuration are."""

    source: str
    rows: int
    median: float
    p90: float
    bias: float
    tau: float | None
    clear: float | None
    memory: float | None


def scores(runs: Iterable[Run]) -> list[Score]:
    """One score a source, in order of appearance."""
    return [score(source, found) for source, found in by_source(runs).items()]


def by_source(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs of each source."""
    return _grouped(runs, lambda run: run.row["source_id"])


def score(source: str, runs: Sequence[Run]) -> Score:
    errors = sorted(abs(run.error) for run in runs)
    memory = [abs(run.memory_error) for run in runs if run.memory_error is not None]
    return Score(
        source,
        len(runs),
        median(errors),
        errors[int(0.9 * (len(errors) - 1) + 0.5)],
        median(run.error for run in runs),
        layout_tau(runs),
        layout_tau(runs, apart=0.05),
        median(memory) if memory else None,
    )


def layout_tau(runs: Sequence[Run], *, apart: float = 0.0) -> float | None:
    """Kendall's tau between predicted and measured throughput of the layouts of one model on so many GPUs.

    Pairs are pooled over all (model, GPU count) of at least three layouts, repeats of one layout averaged; None where
    there are none. apart: only pairs whose measured times differ by more than this share.
    """
    found = []
    for group in _grouped(runs, lambda run: _case(run.row)).values():
        layouts = [_throughput(same) for same in _grouped(group, lambda run: _layout(run.row)).values()]
        if len(layouts) >= 3:
            pairs = combinations(layouts, 2)
            found += [_agree(one, other) for one, other in pairs if abs(one[1] / other[1] - 1) > apart]
    return mean(found) if found else None


def _case(row: Row) -> tuple[Any, ...]:
    return row["model"], row["num_gpus"]


def _layout(row: Row) -> str:
    skipped = ("id", "measured", "notes")
    return str(sorted((key, str(value)) for key, value in row.items() if key not in skipped))


def _throughput(runs: Sequence[Run]) -> tuple[float, float]:
    """Predicted and measured tokens per second of one layout, mean of its repeats."""
    tokens = runs[0].row["global_batch"] * runs[0].row["seq"]
    return tokens / mean(run.step_time_s for run in runs), tokens / mean(
        run.row["measured"]["step_time_s"] for run in runs
    )


def _agree(one: tuple[float, float], other: tuple[float, float]) -> int:
    """1 for a pair that prediction and measurement order alike, -1 for one that they do not."""
    product = (one[0] - other[0]) * (one[1] - other[1])
    return (product > 0) - (product < 0)


def schedule_ratios(runs: Iterable[Run]) -> list[tuple[float, str]]:
    """How far predicted ratios of step times between schedules are off, where only the schedule differs.

    The reference of each group is its plain 1F1B.
    """
    found = []
    for group in _grouped(runs, lambda run: _but_schedule(run.row)).values():
        base = [run for run in group if run.row.get("schedule") == "1f1b" and run.row.get("stage_split") in _PLAIN]
        for run in group:
            if base and run not in base:
                predicted = run.step_time_s / mean(one.step_time_s for one in base)
                measured = run.row["measured"]["step_time_s"] / mean(one.row["measured"]["step_time_s"] for one in base)
                found.append((predicted / measured - 1, f"{run.row['schedule']} {run.row.get('stage_split')}"))
    return found


_PLAIN = ("even", "ends-one-fewer", None)


def _but_schedule(row: Row) -> str:
    keys = ("source_id", "model", "num_gpus", "seq", "vocab", "micro_batch", "global_batch", "tp", "pp")
    return str([row.get(key) for key in keys] + ["artifact" in row["id"]])  # the paper's machine, or its artifact's


def _grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    groups: dict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return groups
