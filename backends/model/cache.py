"""Keys and values of what a sequence had before: for generation, and for slices of a sequence."""

from __future__ import annotations

import torch
from torch import Tensor


class LayerCache:
    """One layer's keys and values of one group of sequences, (batch, length, heads, head_dim)."""

    def __init__(self, most: int = 0) -> None:
        self.most = most  # positions to make room for at once; 0: grow as needed, for slices that are trained
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions; all so far."""
        if not self.most:
            self._keys = k if self._keys is None else torch.cat([self._keys, k], 1)
            self._values = v if self._values is None else torch.cat([self._values, v], 1)
            self.length = self._keys.shape[1]
            return self._keys, self._values
        if self._keys is None or self._values is None:
            self._keys = k.new_empty(k.shape[0], self.most, *k.shape[2:])
            self._values = torch.empty_like(self._keys)
        end = self.length + k.shape[1]
        self._keys[:, self.length : end] = k
        self._values[:, self.length : end] = v
        self.length = end
        return self._keys[:, :end], self._values[:, :end]

    def tensors(self) -> tuple[Tensor, Tensor]:
        """What it holds now."""
        assert self._keys is not None
        assert self._values is not None
        return self._keys, self._values

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> LayerCache:
        """One that has these already."""
        made = cls()
        made._keys, made._values, made.length = keys, values, keys.shape[1]
        return made
