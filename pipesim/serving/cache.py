"""Blocks of the key/value cache that are in use."""

from __future__ import annotations


class Cache:
    """A number of blocks, each of so many tokens. Never gives out more than it has."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks, self.block_tokens, self.used, self.most = blocks, block_tokens, 0, 0

    def needed(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        return -(-tokens // self.block_tokens)

    @property
    def free(self) -> int:
        """Blocks not in use."""
        return self.blocks - self.used

    def take(self, count: int) -> None:
        """Use `count` more blocks, which must be free."""
        self.used += count
        assert self.used <= self.blocks, "a step was made up that does not fit"
        self.most = max(self.most, self.used)

    def give_back(self, count: int) -> None:
        """Free `count` blocks."""
        self.used -= count
        assert self.used >= 0
