"""Texts with numbers in them, compared: the words exactly, the numbers nearly."""

import re

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def words(text: str) -> list[str]:
    """The words around the numbers: a longer number may move a column."""
    return _NUMBER.sub("#", text).split()


def numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in _NUMBER.findall(text)]
