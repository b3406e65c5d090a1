"""One forward of an encoder, microbatch by microbatch through a pipeline, and the lengths its benchmark draws.

FasterTransformer's `bert_triton_example.cc` fills its input with numbers of glibc's `random()` from seed 0, then draws
a length for each sequence; padding is removed, except in the attention. How many tokens are really computed is
therefore known exactly: `drawn_lengths` repeats the generator, and skips the input's numbers by a jump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipesim.serving.instance import Instance

_DEGREE, _TAP = 31, 3  # o[i] = o[i - 3] + o[i - 31] mod 2^32, of which the upper 31 bits are given out
_WARM = 310  # numbers that srandom() throws away
MICROBATCH_TOKENS = 1024
"""Of padded tokens, that FasterTransformer's getLocalBatchSize cuts a pipeline's microbatch to."""

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Microbatch:
    """Sequences that pass the pipeline together."""

    sequences: int
    padded: int
    """Length to which the attention is padded."""
    tokens: int
    """Of all sequences, without padding."""


def forward_seconds(instance: Instance, microbatches: Sequence[Microbatch]) -> float:
    """Time until the last microbatch has left the last stage."""
    free = [0.0] * len(instance.stages)
    for batch in microbatches:
        at = 0.0
        for index, stage in enumerate(instance.stages):
            if index:
                at += float(instance.hops_s[index - 1][batch.tokens])
            seconds = float(stage.tokens_s[batch.tokens]) + stage.prompt_seconds(0, batch.padded, batch.sequences)
            at = free[index] = max(at, free[index]) + seconds + float(stage.rows_s[0])
    return free[-1]


def microbatches_of(lengths: Sequence[int], *, padded: int, stages: int) -> tuple[Microbatch, ...]:
    """A batch cut as FasterTransformer does: a part for each stage, then halved to `MICROBATCH_TOKENS`."""
    size = len(lengths)
    if stages > 1:
        size = size // stages if size % stages == 0 else size
        while size * padded > MICROBATCH_TOKENS and size % 2 == 0:
            size //= 2
    parts = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    return tuple(Microbatch(len(part), padded, max(1, sum(part))) for part in parts)


@lru_cache(maxsize=256)
def drawn_lengths(batch: int, seq: int, hidden: int) -> tuple[int, ...]:
    """Lengths of the benchmark's sequences: each `random() % seq`, after batch · seq · hidden other numbers."""
    skipped = _WARM + batch * seq * hidden
    state = _jump(_seeded(), skipped)
    found = []
    for _ in range(batch):
        new = np.uint32((int(state[0]) + int(state[_DEGREE - _TAP])) & 0xFFFFFFFF)
        state = np.append(state[1:], new)
        found.append((int(new) >> 1) % seq)
    return tuple(found)


def _seeded() -> Words:
    """The state after srandom(0), which takes 1 for 0: a multiplicative generator, the last 31 numbers in order."""
    values = [1]
    for _ in range(_DEGREE - 1):
        values.append(16807 * values[-1] % 2147483647)
    ring = np.array(values, np.uint32)
    return np.roll(ring, -_TAP)  # the first to be added to is number 3, the first to be read number 0


def _jump(state: Words, steps: int) -> Words:
    """The state so many numbers later: x^steps modulo the recurrence's polynomial, applied to the state."""
    result, power = _unit(0), _unit(1)
    for bit in bin(steps)[:1:-1]:
        if bit == "1":
            result = _times(result, power)
        power = _times(power, power)
    window, found = state.copy(), []
    for _ in range(_DEGREE):
        found.append(np.sum(result * window, dtype=np.uint32))
        window = np.append(window[1:], np.uint32((int(window[0]) + int(window[_DEGREE - _TAP])) & 0xFFFFFFFF))
    return np.array(found, np.uint32)


def _unit(power: int) -> Words:
    poly = np.zeros(_DEGREE, np.uint32)
    poly[power] = 1
    return poly


def _times(first: Words, second: Words) -> Words:
    """Product modulo x^31 = x^28 + 1, coefficients modulo 2^32."""
    whole = np.zeros(2 * _DEGREE - 1, np.uint32)
    for power in range(_DEGREE):
        whole[power : power + _DEGREE] += first[power] * second
    for power in range(2 * _DEGREE - 2, _DEGREE - 1, -1):
        over = whole[power : power + 1]
        whole[power - _DEGREE : power - _DEGREE + 1] += over
        whole[power - _TAP : power - _TAP + 1] += over
    return whole[:_DEGREE]
