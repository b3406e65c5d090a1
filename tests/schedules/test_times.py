"""Families that build for times, where some times are lost beside others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.ir.check import check
from pipesim.schedules.lookup import build

_SECONDS = st.integers(-12, 12).map(lambda power: 10.0**power)


def _checked(family: str, ranks: int, microbatches: int, times: tuple[float, ...]) -> None:
    seconds = dict(zip(("forward", "input_grad", "weight_grad", "latency"), times, strict=True))
    check(build(family, ranks=ranks, microbatches=microbatches, **seconds))


@pytest.mark.parametrize("family", ["zb-auto", "v-auto", "zb-v"])
@pytest.mark.parametrize("times", [(1e12, 1e-9, 1e-9, 0), (1e-9, 1, 1e12, 1e12), (1, 1, 1, 1e12), (1e-300, 1, 0, 1)])
def test_times_that_sums_do_not_show(family, times):
    """What ended as it began came before what it needs, and the search for gaps failed: AssertionError in squeeze."""
    _checked(family, 4, 8, times)


@pytest.mark.slow
@given(
    family=st.sampled_from(["zb-auto", "v-auto", "zb-v"]),
    times=st.tuples(_SECONDS, _SECONDS, _SECONDS | st.just(0.0), _SECONDS | st.just(0.0)),
    ranks=st.integers(1, 3),
    microbatches=st.integers(1, 5),
)
def test_times_of_any_size(family, times, ranks, microbatches):
    _checked(family, ranks, microbatches, times)
