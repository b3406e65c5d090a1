"""Text to token numbers and back: bytes as they are, or a tokenizer file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from pipesim.errors import PipesimError
from pipesim.files import CannotRead, read_text

TOKENIZER_FILE = "tokenizer.json"


@dataclass(eq=False)
class VocabularyTooSmall(PipesimError):
    """A model that has no row for some of the tokens."""

    model: str
    rows: int
    needed: int

    def __str__(self) -> str:
        return f"model {self.model} has {self.rows} tokens, the text needs {self.needed}: give a tokenizer of the model"


class Tokenizer(Protocol):
    """Text to token numbers and back. vocabulary: one more than its largest number."""

    vocabulary: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class Bytes:
    """Each byte of UTF-8 is a token."""

    vocabulary = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < self.vocabulary).decode(errors="replace")


class FromFile:
    """A `tokenizer.json` of Hugging Face's tokenizers."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_str(read_text(path))
        except PipesimError:
            raise
        except Exception as error:  # the library raises bare Exceptions
            raise CannotRead(str(path), f"not a tokenizer file ({' '.join(str(error).split())})") from None
        self.vocabulary: int = max(self._tokenizer.get_vocab().values(), default=-1) + 1

    def encode(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text).ids
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        found: str = self._tokenizer.decode(list(tokens))
        return found


def load_tokenizer(place: str | None) -> Tokenizer:
    """Of a file, or of a folder that holds `tokenizer.json`; bytes where there is none. Raises CannotRead."""
    if place is None:
        return Bytes()
    path = Path(place)
    if path.is_dir():
        path = path / TOKENIZER_FILE
        if not path.exists():
            return Bytes()
    return FromFile(path)


def built_in_text() -> str:
    """A small text, written for this project."""
    return (files("pipesim.backends.data") / "text.txt").read_text(encoding="utf-8")
