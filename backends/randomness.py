"""Random numbers that depend on the microbatch, not on who ran before: dropout alike in any schedule."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MASK = (1 << 63) - 1


@contextmanager
def seeded(seed: int, *place: int) -> Iterator[None]:
    """Context whose random numbers follow from `seed` and `place` (step, stage, microbatch, slice).

    The state of before comes back at its end. Seeds the CPU's generator, and CUDA's current one if in use.
    """
    mixed = mix(seed, *place)
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(mixed)
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def mix(*numbers: int) -> int:
    """One well-spread number from several (splitmix64's finaliser, Steele et al. 2014)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed & _MASK
