"""What a careless or hostile hand makes of a good file: values of other kinds and sizes, text cut and stirred."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 10**9, 10**30, -(10**30), 2**31, 2**63, 0.5, 1e308, -1e308, 1e-320,
    float("nan"), float("inf"), -float("inf"), "", "x", "nan", "1", "é\u202e\x00", "0F0", "a" * 300,
    [], {}, [[]], [1], [None], ["x"], {"a": 1}, [1] * 5, "9" * 400,
)  # fmt: skip
PIECES = ("0", "9", "-", "&", ",", ".", "\n", "nan", "1e999", "9" * 30, "\x00", "é", "[", "{", ":", " ", "#", "\t", "x")


def changed_json(text: str, draw: random.Random) -> str:
    """One to three values of a JSON document replaced, or left out."""
    document = json.loads(text)
    for _ in range(draw.choice((1, 1, 2, 3))):
        if not isinstance(document, dict | list) or not document:
            break
        path = draw.choice([path for path in _paths(document) if path])
        inside = document
        for key in path[:-1]:
            inside = inside[key]
        if draw.random() < 0.15:
            del inside[path[-1]]
        else:
            inside[path[-1]] = deepcopy(draw.choice(VALUES))  # which may be changed next
    return json.dumps(document)


def changed_line(text: str, draw: random.Random) -> str:
    """The same for one line of JSON lines; most often the first, the header."""
    lines = text.splitlines()
    place = 0 if draw.random() < 0.5 else draw.randrange(len(lines))
    lines[place] = changed_json(lines[place], draw)
    return "\n".join(lines)


def changed_text(text: str, draw: random.Random) -> str:
    """Cut off, with pieces taken out, put in or repeated."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        if not text:
            return text
        begin = draw.randrange(len(text))
        end = min(len(text), begin + draw.choice((1, 1, 2, 10)))
        middle = draw.choice((None, "", draw.choice(PIECES), text[begin:end] * draw.choice((2, 50))))
        text = text[:begin] if middle is None else text[:begin] + middle + text[end:]
    return text


def _paths(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _paths(value, (*before, key))
    elif isinstance(document, list):
        for place in {0, 1, len(document) - 1} & set(range(len(document))):
            yield from _paths(document[place], (*before, place))
