"""Compiled functions, kept on disk so that only the first use on a machine waits for the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile at the first call. Where no folder can be written to, every process compiles for itself."""
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba: "no locator available"
        return cast(Function, numba.njit(nogil=True)(function))


def inlined(function: Function) -> Function:
    """Compile into each caller: arrays passed to a function of its own cost counting references."""
    return cast(Function, numba.njit(inline="always")(function))
