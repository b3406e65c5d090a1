"""Slices of equal work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.costs.slices import TooFewTokens, equal_work_lengths


def test_without_attention_slices_are_equal() -> None:
    assert equal_work_lengths(100, 4, linear=1.0, attention=0.0) == (25, 25, 25, 25)


def test_with_attention_alone_cuts_go_with_the_square_root() -> None:
    assert equal_work_lengths(100, 4, linear=0.0, attention=1.0) == (50, 21, 16, 13)


@given(st.integers(1, 4096), st.integers(1, 16), st.floats(0, 1), st.floats(0, 1e-3))
def test_all_tokens_are_there_and_work_is_equal_to_a_token(
    tokens: int, slices: int, linear: float, attention: float
) -> None:
    slices = min(slices, tokens)
    lengths = equal_work_lengths(tokens, slices, linear=linear, attention=attention)
    assert (sum(lengths), len(lengths), min(lengths) >= 1) == (tokens, slices, True)
    if tokens > 64 * slices and linear > 0.01:
        ends = [sum(lengths[: k + 1]) for k in range(slices)]
        work = [linear * x + attention * x * x / 2 for x in ends]
        one_token = linear + attention * tokens
        for k, done in enumerate(work):
            assert done == pytest.approx(work[-1] * (k + 1) / slices, abs=one_token)


def test_more_slices_than_tokens() -> None:
    with pytest.raises(TooFewTokens, match="3 tokens cannot be cut into 4 slices: give 1 to 3 slices"):
        equal_work_lengths(3, 4, linear=1.0, attention=0.0)
