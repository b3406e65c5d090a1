"""What is trained: the shape of a decoder-only transformer, as plain numbers.

A `Model` is read from a Hugging Face `config.json` (`hf_config.py`), taken from the catalogue by name
(`model_catalog.py`) or built from a few fields (`Model.from_fields`). What follows from the shape lives
beside it: parameters in `params.py`, matrix products in `flops.py`, stored activations in `activations.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal, get_args

from pipesim.errors import PipesimError

Norm = Literal["rms", "layer"]
Positions = Literal["rotary", "learned", "alibi", "none"]
QkNorm = Literal["none", "head", "full"]


@dataclass(eq=False)
class BadModel(PipesimError):
    """A model's numbers do not fit together."""

    model: str
    problem: str

    def __str__(self) -> str:
        return f"model {self.model!r}: {self.problem}"


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Mixture of experts: `count` routed experts of which each token visits `per_token`, and shared ones."""

    count: int
    per_token: int
    ffn: int
    """Inner width of one routed expert."""
    shared_ffn: int = 0
    """Inner width of all shared experts together; 0 = none."""
    shared_gate: bool = False
    """A sigmoid gate (one row of weights) on the shared experts, as in Qwen2-MoE."""
    first_dense: int = 0
    """The first layers that have an ordinary MLP, as in DeepSeek."""
    every: int = 1
    """Of the layers after those, every how many-th is a mixture (1 = all)."""
    router_bias: bool = False
    """A correction bias per routed expert, as in DeepSeek-V3."""


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, 2405.04434): low-rank keys, values and (if > 0) queries."""

    query_rank: int
    """Rank of the query projection; 0 = one full-rank matrix."""
    key_value_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True)
class LayerKind:
    """What makes one transformer layer differ from another of the same model."""

    mixture: bool = False
    window: int | None = None
    """Length of the sliding attention window in tokens; None = all earlier tokens."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """The shape of one decoder-only transformer. Counts are of the whole model, before any split."""

    name: str
    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_positions: int = 0
    gated_mlp: bool = True
    activation: str = "silu"
    tied_embeddings: bool = False
    norm: Norm = "rms"
    norms_per_layer: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    qk_norm: QkNorm = "none"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    positions: Positions = "rotary"
    position_rows: int = 0
    """Rows of a learned position table; 0 without one."""
    embedding_width: int = 0
    """Width of the token embedding where it differs from `hidden` (OPT-350m); 0 = the same."""
    dropout: bool = False
    sliding_window: int | None = None
    full_attention_every: int = 0
    """With a window: every how many-th layer attends to everything (Gemma 2: 2, Gemma 3: 6); 0 = none."""
    full_attention_from: int | None = None
    """With a window: layers from this one on use it, the earlier attend to everything (Qwen2)."""
    experts: Experts | None = None
    latent: LatentAttention | None = None
    predicted_layers: int = 0
    """Extra multi-token-prediction layers at the end (DeepSeek-V3); not part of `layers`."""

    def __post_init__(self) -> None:
        _check_counts(self)
        _check_choices(self)
        if self.heads % self.kv_heads:
            raise BadModel(
                self.name,
                f"{self.heads} attention heads are not a multiple of {self.kv_heads} key/value heads; "
                f"key/value heads that work: {_divisors(self.heads)}",
            )
        if self.experts is not None and not 0 < self.experts.per_token <= self.experts.count:
            raise BadModel(
                self.name,
                f"each token visits {self.experts.per_token} of {self.experts.count} experts; "
                f"that must be from 1 to {self.experts.count}",
            )

    @classmethod
    def from_fields(cls, row: Mapping[str, object], *, name: str | None = None) -> Model:
        """Model of a table row with `layers`, `hidden`, `heads`, `kv_heads`, `ffn`, `vocab`, ...

        `arch` gives what such a row leaves out: "gpt" has LayerNorm, biases, learned positions and dropout,
        "llama" has RMSNorm, no biases and rotary positions. Keys that are not known are ignored.
        """
        return _from_fields(dict(row), name)

    def kind(self, layer: int) -> LayerKind:
        """Kind of layer number `layer` (from 0)."""
        mixture = False
        if self.experts is not None and layer >= self.experts.first_dense:
            mixture = (layer - self.experts.first_dense + 1) % self.experts.every == 0
        return LayerKind(mixture, self.sliding_window if self._windowed(layer) else None)

    def _windowed(self, layer: int) -> bool:
        if self.sliding_window is None:
            return False
        if self.full_attention_from is not None:
            return layer >= self.full_attention_from
        return not (self.full_attention_every and (layer + 1) % self.full_attention_every == 0)

    def kinds(self) -> tuple[LayerKind, ...]:
        """Kind of every layer, in order: layers of one kind cost the same."""
        return _kinds(self)

    @property
    def query_width(self) -> int:
        """Columns of the query projection: heads × width of one query."""
        return self.heads * (self.latent.nope_dim + self.latent.rope_dim if self.latent else self.head_dim)

    @property
    def value_width(self) -> int:
        """Rows of the attention output projection: heads × width of one value."""
        return self.heads * (self.latent.value_dim if self.latent else self.head_dim)

    @property
    def key_value_width(self) -> int:
        """Columns of the key projection alone (the value's are as many), for grouped-query attention."""
        return self.kv_heads * self.head_dim


@lru_cache(maxsize=1024)
def _kinds(model: Model) -> tuple[LayerKind, ...]:
    return tuple(model.kind(layer) for layer in range(model.layers))


_AT_LEAST_ONE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab")
_AT_LEAST_ZERO = (
    "ffn", "max_positions", "position_rows", "embedding_width", "predicted_layers", "norms_per_layer",
    "full_attention_every",
)  # fmt: skip
_OPTIONAL = ("sliding_window", "full_attention_from")
_LIMIT = 1 << 40
_LAYER_LIMIT = 1 << 12  # a model of more layers is a typing error, and would only fill memory


def _check_counts(model: Model) -> None:
    given = tuple(name for name in _OPTIONAL if getattr(model, name) is not None)
    for name in (*_AT_LEAST_ONE, *_AT_LEAST_ZERO, *given):
        value = getattr(model, name)
        least = 1 if name in (*_AT_LEAST_ONE, "sliding_window") else 0
        most = _LAYER_LIMIT if "layers" in name else _LIMIT
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadModel(model.name, f"{name} = {value!r} must be a whole number from {least} to {most}")


_FLAGS = (
    "gated_mlp", "tied_embeddings", "final_norm", "embedding_norm", "qkv_bias", "output_bias", "mlp_bias", "dropout",
)  # fmt: skip
_CHOICES: dict[str, tuple[str, ...]] = {
    "norm": get_args(Norm),
    "positions": get_args(Positions),
    "qk_norm": get_args(QkNorm),
}


def _check_choices(model: Model) -> None:
    for name in _FLAGS:
        if not isinstance(getattr(model, name), bool):
            raise BadModel(model.name, f"{name} = {getattr(model, name)!r} must be true or false")
    for name, known in _CHOICES.items():
        if getattr(model, name) not in known:
            raise BadModel(model.name, f"{name} = {getattr(model, name)!r} must be one of {', '.join(known)}")
    parts: dict[str, type] = {"experts": Experts, "latent": LatentAttention}
    for name, kind in parts.items():
        if not isinstance(getattr(model, name), kind | None):
            raise BadModel(model.name, f"{name} = {getattr(model, name)!r} must be {kind.__name__} or left out")


def _divisors(number: int) -> str:
    return ", ".join([str(d) for d in range(1, min(number, 4096) + 1) if number % d == 0][:16])


_ARCHITECTURES: dict[str, dict[str, object]] = {
    "gpt": {
        "norm": "layer", "gated_mlp": False, "activation": "gelu", "positions": "learned", "dropout": True,
        "tied_embeddings": True, "qkv_bias": True, "output_bias": True, "mlp_bias": True,
    },
    "llama": {"norm": "rms", "gated_mlp": True, "activation": "silu", "positions": "rotary"},
}  # fmt: skip
_REQUIRED = ("layers", "hidden", "vocab")


def _from_fields(row: dict[str, object], name: str | None) -> Model:
    label = name or str(row.get("model") or row.get("name") or "unnamed")
    missing = [key for key in _REQUIRED if not row.get(key)]
    if missing:
        raise BadModel(label, f"a model needs {', '.join(_REQUIRED)}; missing: {', '.join(missing)}")
    architecture = str(row.get("arch") or row.get("architecture") or "llama")
    base = _ARCHITECTURES.get(architecture, _ARCHITECTURES["llama"])
    values: dict[str, object] = {**base, **{k: v for k, v in row.items() if k in _FIELDS and v is not None}}
    hidden = _whole(label, "hidden", values["hidden"])
    tp = row.get("tp")
    shares = max(8, tp) if isinstance(tp, int) else 8
    heads = _whole(label, "heads", values.get("heads") or usual_heads(hidden, shares=shares))
    values["heads"] = heads
    values.setdefault("kv_heads", heads)
    values.setdefault("head_dim", max(1, hidden // heads))
    values.setdefault("ffn", 4 * hidden if not values["gated_mlp"] else _llama_ffn(hidden))
    positions = row.get("max_positions") or row.get("seq") or 2048
    values["max_positions"] = positions
    if values["positions"] == "learned":
        values.setdefault("position_rows", positions)
    return Model(**{**values, "name": label, "architecture": architecture})  # type: ignore[arg-type]


def _whole(model: str, field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadModel(model, f"{field} = {value!r} must be a whole number of at least 1")
    return value


def usual_heads(hidden: int, *, shares: int = 8) -> int:
    """Heads when a row does not say: about hidden / 128, dividing `hidden`, and a multiple of `shares` if
    possible, so that as many tensor-parallel ranks can share them."""
    divisors = [heads for heads in range(1, min(hidden, 4096) + 1) if hidden % heads == 0]
    shared = [heads for heads in divisors if heads % shares == 0]
    return min(shared or divisors, key=lambda heads: abs(heads - hidden / 128))


def _llama_ffn(hidden: int) -> int:
    """Inner width of Llama's MLP: 2/3 of 4·hidden, rounded up to 256 (2302.13971)."""
    return -(-8 * hidden // 3 // 256) * 256


_FIELDS = frozenset(field.name for field in fields(Model))
