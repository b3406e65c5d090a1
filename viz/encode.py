"""Figures as JSON text, quickly: numpy arrays in the base64 form that plotly.js reads."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

_TYPES = {
    "float64": "f8",
    "float32": "f4",
    "int8": "i1",
    "uint8": "u1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
}


def to_json(value: Any) -> str:
    """JSON that may stand inside a `<script>`: no `<` in it."""
    return json.dumps(value, default=_plain, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _array(values: np.ndarray) -> Any:
    if values.dtype == np.int64 and np.array_equal(values, values.astype(np.int32)):
        values = values.astype(np.int32)  # JavaScript has no 64-bit integers
    kind = _TYPES.get(values.dtype.name)
    if kind is None or len(values) < 8:
        return values.tolist()
    data = {"dtype": kind, "bdata": base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()}
    return data if values.ndim == 1 else data | {"shape": ", ".join(map(str, values.shape))}
