"""Lengths that FasterTransformer's benchmark draws, and an encoder's forward in a pipeline."""

import pytest

from pipesim.serving.encoder import Microbatch, drawn_lengths, forward_seconds, microbatches_of
from tests.serving.flat import flat_instance


@pytest.mark.parametrize(
    ("batch", "seq", "total", "squares"),
    [(1, 32, 11, 121), (1, 1024, 549, 301401), (4, 384, 852, 245276), (32, 128, 2104, 196086),
     (32, 1024, 15406, 9597202)],
)  # fmt: skip
def test_lengths_are_those_of_glibc(batch: int, seq: int, total: int, squares: int) -> None:
    """Sums printed by a C program: srand(0), batch · seq · 4096 calls of random(), then random() % seq."""
    lengths = drawn_lengths(batch, seq, 4096)
    assert (sum(lengths), sum(length**2 for length in lengths)) == (total, squares)


def test_a_batch_is_cut_for_the_stages_and_to_1024_tokens() -> None:
    assert [m.sequences for m in microbatches_of((5,) * 8, padded=32, stages=1)] == [8]
    assert [m.sequences for m in microbatches_of((5,) * 8, padded=32, stages=2)] == [4, 4]
    assert [m.sequences for m in microbatches_of((5,) * 8, padded=1024, stages=2)] == [1] * 8
    assert [m.tokens for m in microbatches_of((1, 2, 3), padded=32, stages=2)] == [6]


def test_microbatches_fill_the_pipeline() -> None:
    instance = flat_instance(stages=3, groups=1)
    assert forward_seconds(instance, [Microbatch(1, 8, 8)] * 4) == pytest.approx(3 + 4 - 1)
