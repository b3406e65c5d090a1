"""Microbatches of different lengths."""

from __future__ import annotations

import numpy as np
import pytest

from pipesim.costs.costs import Costs
from pipesim.costs.lengths import BadLengths, read_lengths, with_lengths
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow


def test_time_and_message_grow_with_the_length_and_attention_with_its_square():
    costs = Costs(2, {Kind.F: np.array([1.0, 3.0])}, message_bytes={Flow.ACTIVATION: np.array([8.0, 8.0])})
    found = with_lengths(costs, np.array([100.0, 200.0]), usual=100, attention={Kind.F: np.array([0.0, 0.5])})
    assert found.seconds[Kind.F][:, :, 0].tolist() == [[1.0, 2.0], [3.0, 9.0]]
    assert found.message_bytes[Flow.ACTIVATION][:, :, 0].tolist() == [[8.0, 16.0], [8.0, 16.0]]


def test_a_file_is_a_line_a_step_or_one_step_down_the_lines(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("# tokens\n1, 2, 3\n4 5 6  # second\n\n")
    assert read_lengths(path, microbatches=3).tolist() == [[1, 2, 3], [4, 5, 6]]
    path.write_text("7\n8\n9\n")
    assert read_lengths(path, microbatches=3).tolist() == [[7, 8, 9]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no numbers in it"),
        ("1 2\n", "step 1 has 2 lengths for 3 microbatches"),
        ("1 2 x\n", "could not convert string to float"),
        ("1 2 -3\n", "-3 is no length: more than 0"),
        ("1 2 nan\n", "nan is no length"),
    ],
)
def test_a_file_that_cannot_be_meant(tmp_path, text, reason):
    path = tmp_path / "lengths.txt"
    path.write_text(text)
    with pytest.raises(BadLengths, match=reason):
        read_lengths(path, microbatches=3)
