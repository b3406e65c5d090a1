"""One stage of a decoder, built from a configuration: only its own layers, on the meta device until told otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipesim.backends.model.cache import LayerCache
from pipesim.backends.model.config import DecoderConfig
from pipesim.backends.model.decoder import Checkpointing, Layer, RmsNorm, Where
from pipesim.backends.model.rotary import tables
from pipesim.backends.trees import Tree
from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.costs.layouts.split import StageLayers, split_layers
from pipesim.errors import PipesimError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"  # their names in checkpoints


@dataclass(eq=False)
class TooLong(PipesimError):
    """More positions than the model has."""

    model: str
    length: int
    most: int

    def __str__(self) -> str:
        return f"{self.length} positions, but model {self.model} has {self.most}: use at most {self.most}"


class Embedding(nn.Module):
    """Rows of a table by token; under tensor parallelism `first_row` is where this rank's rows begin."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        self.first_row = 0
        self.dtype: torch.dtype | None = None  # of what it gives, if not that of the weights

    def forward(self, tokens: Tensor) -> Tensor:
        found = functional.embedding(tokens, self.weight)
        return found if self.dtype is None else found.to(self.dtype)


class Body(nn.Module):
    """Everything but the head, under the names of Hugging Face checkpoints."""

    def __init__(self, config: DecoderConfig, layout: Layout, held: StageLayers) -> None:
        super().__init__()
        model = config.model
        recomputed = held.layers if layout.recompute_layers is None else layout.recompute_layers
        self.embed_tokens = Embedding(model.vocab, model.hidden) if held.embedding else None
        self.layers = nn.ModuleDict()
        for index in range(held.layers):
            parts = checkpointing(layout) if index < recomputed else Checkpointing()
            self.layers[str(held.first + index)] = Layer(config, held.first + index, parts)
        self.norm = RmsNorm(model.hidden, config.norm_eps) if held.head else None


class DecoderStage(nn.Module):
    """Some layers of a decoder, with the embedding and the head where the split puts them.

    forward takes tokens (where the embedding is) or hidden states of this rank, and gives hidden states or logits
    (of this rank's part of the vocabulary).
    compute_dtype: of the hidden states, if not that of the weights (mixed precision).
    """

    def __init__(self, config: DecoderConfig, layout: Layout, held: StageLayers) -> None:
        super().__init__()
        self.config, self.held = config, held
        self.sequence_shards = layout.sequence_shards
        self.recomputes = layout.recompute == "full"
        self.model = Body(config, layout, held)
        self.lm_head = nn.Linear(config.model.hidden, config.model.vocab, bias=False) if held.head else None
        self.compute_dtype: torch.dtype | None = None
        self.tie()

    def compute_in(self, dtype: torch.dtype | None) -> None:
        """Hidden states of this type (None: of the weights'), for mixed precision."""
        self.compute_dtype = dtype
        if self.model.embed_tokens is not None:
            self.model.embed_tokens.dtype = dtype

    def tie(self) -> None:
        """Make embedding and head one parameter, where the model has it so and both are here."""
        embedding, head = self.model.embed_tokens, self.lm_head
        if self.config.model.tied_embeddings and embedding is not None and head is not None:
            head.weight = embedding.weight

    def weights(self) -> dict[str, nn.Parameter]:
        """Parameters by their name in a checkpoint, each once; a tied head has the embedding's."""
        found: dict[str, nn.Parameter] = {}
        for name, weight in self.named_parameters():
            tied = name == HEAD and self.config.model.tied_embeddings
            found[EMBEDDING if tied else name] = weight
        return found

    def units(self) -> list[nn.Module]:
        """The modules whose weights are gathered and reduced together, in order; all else belongs to the stage."""
        return list(self.model.layers.values())

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x, self._where(x, 0, None))

    def forward_slice(self, x: Tensor, *, carry: Tree, slice: int) -> tuple[Tensor, Tree]:
        """One slice of a sequence; the carry has each layer's keys and values, and how many positions went before."""
        if self.recomputes:
            raise BadLayout("recompute='full' with sequences in slices", "recompute='selective' or 'none' works")
        before, past = carry if carry is not None else (0, {})
        caches = {number: LayerCache.of(*past[number]) if past else LayerCache() for number in self.numbers()}
        length = x.shape[1] * (1 if self.model.embed_tokens is not None else self.sequence_shards)
        x = self.run(x, self._where(x, before, caches))
        return x, (before + length, {number: cache.tensors() for number, cache in caches.items()})

    def run(self, x: Tensor, where: Where, *, last_only: bool = False) -> Tensor:
        """Through embedding, layers and head, as far as they are here. last_only: logits of the last position."""
        if self.model.embed_tokens is not None:
            x = self.model.embed_tokens(x)
        for layer in self.model.layers.values():
            x = layer(x, where)
        if self.model.norm is not None and self.lm_head is not None:
            x = self.lm_head(self.model.norm(x[:, -1:] if last_only else x))
        return x

    def numbers(self) -> range:
        """Numbers of the layers that are here."""
        return range(self.held.first, self.held.first + self.held.layers)

    def where(self, positions: Tensor, mask: Tensor | None, caches: dict[int, LayerCache] | None) -> Where:
        """For these positions, (sequence,) or (batch, sequence). Raises TooLong."""
        cosine, sine = tables(self.config.rope, self.config.model.head_dim, positions, self._dtype())
        return Where(cosine, sine, mask, caches)

    def _where(self, x: Tensor, before: int, caches: dict[int, LayerCache] | None) -> Where:
        length = x.shape[1] * (1 if self.model.embed_tokens is not None else self.sequence_shards)
        if not self.held.layers:
            length = 0  # nothing here looks at positions
        check_length(self.config, before + length)
        positions = torch.arange(before, before + length, device=x.device)
        mask = None
        if before:
            mask = torch.arange(before + length, device=x.device)[None, :] <= positions[:, None]
        return self.where(positions, mask, caches)

    def _dtype(self) -> torch.dtype:
        return self.compute_dtype or next(self.parameters(), torch.empty(0)).dtype


def check_length(config: DecoderConfig, length: int) -> None:
    """Raises TooLong."""
    if config.model.max_positions and length > config.model.max_positions:
        raise TooLong(config.model.name, length, config.model.max_positions)


def checkpointing(layout: Layout) -> Checkpointing:
    """What a layer of this layout computes again."""
    if layout.recompute == "full":
        return Checkpointing(frozenset({"layer"}))
    return Checkpointing(frozenset(layout.recompute_modules if layout.recompute == "selective" else ()))


def stages_of(config: DecoderConfig, layout: Layout, stages: int) -> tuple[StageLayers, ...]:
    """What each of `stages` stages holds. Raises BadLayout."""
    if layout.vocabulary != "ends":
        raise BadLayout(f"vocabulary={layout.vocabulary!r} can only be simulated", "vocabulary='ends' works")
    return split_layers(config.model, replace(layout, virtual=stages // layout.pp))


def build_stage(config: DecoderConfig, layout: Layout, held: StageLayers, dtype: torch.dtype) -> DecoderStage:
    """A stage on the meta device: shapes and no memory."""
    with torch.device("meta"):
        return DecoderStage(config, layout, held).to(dtype)
