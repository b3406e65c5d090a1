"""Costs that `profile` writes: what families that build for them are told."""

from pathlib import Path

import pytest

from pipesim.costs.costs_file import read_costs_file, write_costs_file


def test_families_are_told_a_ranks_whole_share(tmp_path: Path) -> None:
    lists = {"F": [1.0, 2.0, 3.0, 4.0], "I": [2.0] * 4, "W": [1.0] * 4}
    write_costs_file(tmp_path / "costs.json", lists, {"latency_s": 0.5}, {})
    file = read_costs_file(tmp_path / "costs.json")
    two_stages_a_rank = {"forward": 5.0, "input_grad": 4.0, "weight_grad": 2.0, "latency": 0.5}
    assert file.typical_times(2) == pytest.approx(two_stages_a_rank)
    assert file.typical_times(None)["forward"] == pytest.approx(2.5)
