"""What each benchmark claims, and how its number is found in what the benchmark prints.

Every number is an error, or a ratio to something else of the same run: the smaller, the better.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Claim:
    """One sentence of which `measure` finds the number in the output; it holds up to `at_most`."""

    text: str
    measure: Callable[[str], float]
    at_most: float
    form: str = ".2f"


@dataclass(frozen=True)
class Benchmark:
    """A module of this folder. quick: its arguments where minutes must do; None where it has no quick form.

    needs: a package without which it cannot run. tries: how often it may run, as whatever else runs on the machine
    disturbs a clock; the best of them counts. waits: mostly sleeps until a set time, and may go before all other work
    then.
    """

    module: str
    claims: tuple[Claim, ...]
    quick: tuple[str, ...] | None = ()
    needs: str = ""
    tries: int = 1
    waits: bool = False


def rows(text: str, prefix: str) -> list[list[float]]:
    """The numbers of each line that begins with these words, without the words themselves; at least one line."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    found = [_numbers(line.removeprefix(prefix)) for line in lines if line.startswith(prefix + " ")]
    assert found, f"no line begins with {prefix!r} in\n{text}"
    return found


def _numbers(text: str) -> list[float]:
    words = (re.fullmatch(r"([+-]?[\d,]*\.?\d+)[%;,]*", word) for word in text.split())
    return [float(word[1].replace(",", "")) for word in words if word]


def in_row(prefix: str, place: int, *, percent: bool = False) -> Callable[[str], float]:
    """The number at a place of the first such line."""
    return lambda text: rows(text, prefix)[0][place] / (100 if percent else 1)


def over(prefix: str, below: str, place: int = -1) -> Callable[[str], float]:
    """The same number of two lines, one over the other."""
    return lambda text: rows(text, prefix)[0][place] / rows(text, below)[0][place]


def places(prefix: str, place: int, below: int) -> Callable[[str], float]:
    """Two numbers of one line, one over the other."""
    return lambda text: rows(text, prefix)[0][place] / rows(text, prefix)[0][below]


def largest_error(text: str) -> float:
    return max(row[0] for row in rows(text, "largest error")) / 100


def held_out_tables(text: str) -> float:
    """Part of the tables that are not within 15 %."""
    tables, within, *_ = rows(text, "held out:")[0]
    return 1 - within / tables


def interpolation(text: str) -> float:
    """Of the tables, the median of their errors along m, n and k."""
    return median(error for row in rows(text.replace("gemm_", "gemm "), "gemm") for error in row[0::2]) / 100


def beside_torch(text: str, stages: str) -> float:
    """Ours over torch's, the median of the schedules."""
    lines = [line for line in text.splitlines() if line.split()[1:2] == [stages]]
    return median(_numbers(line)[2] for line in lines)


def generating(text: str) -> float:
    """Ours over torch's, the median of the families and sizes that torch has."""
    lines = [_numbers(line) for line in text.splitlines() if len(line.split()) == 9]
    return 1 / median(line[-1] for line in lines if len(line) == 8)


def zoom(text: str) -> float:
    """CPU time of a step of zoom, ours over plotly's, at the most boxes that plotly puts on the screen."""
    theirs = [row for row in rows(text, "go.Bar") if len(row) == 9][-1]
    ours = next(row for row in rows(text, "pipesim") if row[0] == theirs[0])
    return ours[6] / theirs[6]


def worst_bar(text: str) -> float:
    """Makespan over that of the stored schedule, the worst of all cases."""
    sources = ("1f1b_v", "v_auto", "v_half", "v_min", "zb_auto", "zbv", "zbv_fixed", "ZB-1p", "ZB-2p")
    return max(rows(text, source)[0][-1] for source in sources if f"\n{source} " in text)


def gain_missed(text: str) -> float:
    predicted, measured = rows(text, "gain")[0]
    return abs(predicted - measured) / 100


def heuristic(text: str) -> float:
    """The median of makespans over those of other heuristic searches, worst family."""
    return max(row[-2] for row in rows(text, "v-auto, bar") if len(row) > 4)


def tau(text: str) -> float:
    return 1 - float(text.rsplit("tau = ", 1)[1].split()[0])


_MEAN = "mean of sources"
_LAYERS, _EMPTY = (lambda text: beside_torch(text, "decoder")), (lambda text: beside_torch(text, "empty"))

BENCHMARKS: dict[str, Benchmark] = {
    "accuracy": Benchmark(
        "accuracy.run",
        (
            Claim("error of predicted steps, 1,622 published runs: mean of the sources' medians",
                  in_row(_MEAN, 1, percent=True), 0.055, ".1%"),
            Claim("that over the error of FLOPs at one efficiency", places(_MEAN, 1, 5), 0.35),
        ),
    ),
    "validation": Benchmark(
        "validation.run",
        (Claim("error of predicted steps, emulated stages on real processes: largest", largest_error, 0.05, ".1%"),),
        quick=("--ranks", "4", "--microbatches", "8", "--steps", "3", "--schedules", "1f1b,interleaved,zb-v,dualpipe"),
        needs="torch",
        tries=3,
        waits=True,
    ),
    "overhead": Benchmark(
        "overhead.run",
        (
            Claim("step of our executor over torch's, transformer layers: median of schedules", _LAYERS, 1.05),
            Claim("step of our executor over torch's, stages that do nothing: median of schedules", _EMPTY, 1.0),
        ),
        quick=("--steps", "10", "--schedules", "1f1b,zb-v"),
        needs="torch",
        tries=3,
    ),
    "schedules": Benchmark(
        "schedules.run",
        (Claim("generating and lowering over torch's, CPU: median of families and sizes", generating, 0.1, ".3f"),),
        quick=("--quick",),
        needs="torch",
    ),
    "engine": Benchmark(
        "engine.run",
        (
            Claim("compiled engine over event engine, CPU, 102,400 actions",
                  places("1f1b 32x1600", 3, 4), 0.01, ".4f"),
            Claim("CPU an action of 131,072 actions over 10,240",
                  lambda text: rows(text, "1f1b 64x1024")[0][3] / rows(text, "1f1b 8x640")[0][3], 2.0),
        ),
        quick=("--quick",),
    ),
    "split_backward": Benchmark(
        "split_backward.run",
        (
            Claim("input and weight gradient apart over the whole backward", over("graph", "whole"), 1.25),
            Claim("input and weight gradient apart over two passes", over("graph", "two_pass"), 1.0),
        ),
        needs="torch",
    ),
    "charts": Benchmark(
        "charts.run",
        (Claim("a step of zoom over that of a plain plotly chart, CPU, most boxes that plotly draws", zoom, 0.5),),
        quick=("--quick",),
        needs="playwright",
    ),
    "kernels": Benchmark(
        "kernels.run", (Claim("error of interpolated matrix products: median", interpolation, 0.05, ".1%"),)
    ),
    "collectives": Benchmark(
        "collectives.run",
        (Claim("held-out tables of NCCL off by more than 15 % at their median: part", held_out_tables, 0.25),),
    ),
    "search": Benchmark(
        "search.bars",
        (Claim("makespan found over the stored one, same memory: worst case", worst_bar, 1.0001, ".4f"),),
        quick=("--every", "40"),
    ),
    "found_schedule": Benchmark(
        "search.emulated",
        (Claim("gain of a found schedule over 1F1B, predicted less measured", gain_missed, 0.03, ".1%"),),
        needs="torch",
        tries=3,
        waits=True,
    ),
    "heuristics": Benchmark(
        "heuristics.run",
        (Claim("v-auto over other heuristic searches, same memory: median, worst family", heuristic, 1.0, ".4f"),),
        quick=None,
    ),
    "serving": Benchmark(
        "serving.run",
        (
            Claim("error of predicted inference, published figures: mean of the sources' medians",
                  in_row("mean of the medians:", 0, percent=True), 0.10, ".1%"),
            Claim("ranking of layouts: 1 - Kendall's tau", tau, 0.1),
        ),
    ),
}  # fmt: skip
