"""A group of requests that step together, what one of its steps does, and the rules by which steps are made up.

Decoding requests are kept as sums, so that a step costs the same for one request and for a thousand: how many there
are, how many tokens they have cached, which ones end with which step, and how many need another block before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How an engine makes up its steps."""

    batch: int
    """Most requests that run at a time, all groups together."""
    tokens: int
    """Most new tokens in one step of one group."""
    blocks: int
    """Blocks of key/value cache."""
    block_tokens: int = 16
    chunked: bool = True
    """Prompts are cut to the room that decoding requests leave in a step; else whole prompts have steps of their own,
    before any decoding."""
    reserves: bool = False
    """A request starts only when blocks for its whole output are free; nothing is preempted then."""
    prefilled: bool = False
    """Requests come with the cache of their prompt and their first token: the decoding side of separate pools."""


@dataclass
class Piece:
    """A prompt that is being read; `done` of its tokens are in the cache."""

    request: int
    tokens: int
    done: int = 0


@dataclass(frozen=True)
class Step:
    """What one step of a group does."""

    decoding: int
    cached: int
    """Tokens in the caches of the decoding requests, before the step."""
    pieces: tuple[tuple[int, int], ...]
    """Of prompts: tokens before, and new ones."""
    complete: int
    """Prompts that are read whole with it; their first token is sampled."""

    @property
    def prompt_tokens(self) -> int:
        """New tokens of prompts."""
        return sum(new for _, new in self.pieces)

    @property
    def tokens(self) -> int:
        """New tokens."""
        return self.decoding + self.prompt_tokens


@dataclass
class Group:
    """Requests that step together, by their numbers in the stream."""

    block_tokens: int
    step: int = 0
    """Decoding steps so far."""
    decoding: int = 0
    cached: int = 0
    prompts: list[Piece] = field(default_factory=list)
    """Oldest first."""
    ends: dict[int, list[int]] = field(default_factory=dict)
    """Requests whose last token comes with that step."""
    grows: list[int] = field(default_factory=list)
    """How many need a block before the steps of each remainder by the size of a block."""
    order: list[int] = field(default_factory=list)
    """Requests as they were admitted, among them some that have left."""
    reading: list[Piece] = field(default_factory=list)
    """Pieces of the step under way that complete their prompts."""
    stepping: int = 0
    """Requests that decode in the step under way."""

    def __post_init__(self) -> None:
        self.grows = [0] * self.block_tokens

    @property
    def requests(self) -> int:
        """Requests in the group."""
        return self.decoding + len(self.prompts)
