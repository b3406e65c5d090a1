"""Compiled functions, kept on disk so that only the first use on a machine waits for the compiler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from inspect import getfile
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile at the first call. Where no folder can be written to, every process compiles for itself.

    What the function calls, and the tuples and constants it reads, stand in its own folder.
    """
    try:
        made = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba: "no locator available"
        return cast(Function, numba.njit(nogil=True)(function))
    _renew_with(made, _source(Path(getfile(function)).parent))
    return cast(Function, made)


def inlined(function: Function) -> Function:
    """Compile into each caller: arrays passed to a function of its own cost counting references."""
    return cast(Function, numba.njit(inline="always")(function))


@cache
def _source(folder: Path) -> bytes:
    """Another one after any change in the folder's source."""
    return sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))).digest()


def _renew_with(made: Any, source: bytes) -> None:
    """Take from disk only what was compiled from the same source.

    numba itself looks at the one file of a function; code for another layout of a tuple then reads past its arrays.
    """
    kept: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)  # there is no public name for it
    if hasattr(kept, "_source_stamp"):
        kept._source_stamp = source
