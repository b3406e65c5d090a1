"""Peak memory against measured runs; tests/data/measured_memory.md names their sources."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from pipesim.costs.layouts.frameworks import GIB, closest_framework
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.row_layout import layout_of_row
from pipesim.costs.layouts.split import split_layers
from pipesim.costs.memory import message_bytes, rank_memory, stage_memory
from pipesim.costs.models.model import Model

DATA = Path(__file__).parents[1] / "data" / "measured_memory.jsonl"
SOURCES = {
    "nanotron-ultrascale": 0.08,
    "bigscience-bloom-prequel": 0.05,
    "simumax-b200": 0.03,
    "zb-2401.10241": 0.05,
    "vocabpar-2411.05288": 0.05,
}
"""The largest median error allowed; all are far below the 10 % that is asked for."""


def in_flight(schedule: str, rank: int, layout: Layout) -> float:
    """Microbatches that a rank holds at the peak, by the closed forms of the papers."""
    ranks, chunks = layout.pp, layout.virtual
    if "interleaved" in schedule:
        held = ((chunks - 1) * ranks + 2 * (ranks - 1 - rank) + 1) / chunks
    elif "zb-2p" in schedule:
        held = 2 * ranks - 1
    elif "zb-1p" in schedule:
        held = ranks
    else:  # 1F1B; a spread vocabulary holds up to two more, the interlaced one half as many again (2411.05288)
        held = ranks - rank + {"1": 2, "2": 1}.get(schedule.rpartition("vocab-")[2], 0)
        held *= 1.5 if "interlaced" in schedule else 1
    return min(held, layout.microbatches)


def peak_gib(row: dict[str, object]) -> float:
    model, layout = Model.from_fields(row), layout_of_row(row).layout
    framework = closest_framework(layout.framework)
    memory = [stage_memory(model, layout, stage) for stage in split_layers(model, layout)]
    message = message_bytes(model, layout) if layout.pp > 1 else 0.0
    peaks = []
    for rank in range(layout.pp):
        stages = memory[rank :: layout.pp]
        held = in_flight(str(row.get("schedule", "")), rank, layout)
        peaks.append(rank_memory(stages, [held] * len(stages), message=message).reported(framework) / GIB)
    return max(peaks)


@cache
def errors() -> dict[str, list[float]]:
    found = defaultdict(list)
    for line in DATA.read_text().splitlines():
        row = json.loads(line)
        found[row["source_id"]].append(abs(peak_gib(row) / row["memory_gb"] - 1))
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_predicted_peak_is_near_the_measured_one(source: str) -> None:
    assert median(errors()[source]) <= SOURCES[source]


def test_nine_in_ten_are_within_a_fifth() -> None:
    for source, found in errors().items():
        assert sorted(found)[int(0.9 * len(found))] <= 0.20, source
