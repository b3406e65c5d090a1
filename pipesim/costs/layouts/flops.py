"""Matrix products and attention of one layer on one rank, as shapes, and the FLOPs of the whole model.

Two conventions of "model FLOPs" are in use, and differ by half of the attention:
`model_flops` counts every matrix product 2·m·n·k for the forward and twice that for the backward, attention
over the whole square and the output layer, as Narayanan et al. (2104.04473, eq. 3 without its factor for
recomputation) and PaLM (2204.02311, appendix B). `causal=True` counts only the attended half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model import LayerKind, Model


@dataclass(frozen=True, slots=True)
class Gemm:
    """`count` products of an (m, k) by a (k, n) matrix: rows are tokens, n and k the weight.

    Its input gradient is (m, k, n) and its weight gradient (n, k, m).
    """

    name: str
    m: int
    n: int
    k: int
    count: int = 1

    @property
    def flops(self) -> int:
        """Of the forward: 2·m·n·k each."""
        return 2 * self.m * self.n * self.k * self.count


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The attention of one layer on one rank: scores and weighted values, without projections."""

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    value_dim: int
    causal: bool = True
    window: int | None = None

    @property
    def flops(self) -> int:
        """Of the forward over the whole square, causal or not: 2·q·k·(head + value width) a head."""
        return 2 * self.batch * self.heads * self.seq_q * self.seq_k * (self.head_dim + self.value_dim)

    @property
    def attended_flops(self) -> float:
        """Of the forward over the pairs that are attended: half of the square, less with a window."""
        return self.flops * attended_fraction(self.seq_k, causal=self.causal, window=self.window)


def attended_fraction(seq: int, *, causal: bool, window: int | None) -> float:
    """Share of the seq × seq square that is attended."""
    if not causal:
        return 1.0
    if window is None or window >= seq:
        return (seq + 1) / (2 * seq)
    return window * (2 * seq - window + 1) / (2 * seq * seq)


@lru_cache(maxsize=65536)
def gemms(model: Model, layout: Layout, kind: LayerKind) -> tuple[Gemm, ...]:
    """Matrix products of the forward of one layer, for one microbatch on one rank."""
    return (*_attention_gemms(model, layout), *_mlp_gemms(model, layout, kind))


@lru_cache(maxsize=65536)
def attention(model: Model, layout: Layout, kind: LayerKind) -> AttentionShape:
    """Attention of one layer, for one microbatch on one rank.

    With context parallelism each rank has its share of the queries (ring, all-gather) or of the heads
    (all-to-all); the causal work is evenly spread in both (two-ended chunks in the ring).
    """
    over_heads = layout.cp if layout.context_comm == "all-to-all" else 1
    shards = layout.tp * over_heads
    latent = model.latent
    return AttentionShape(
        batch=layout.micro_batch,
        heads=model.heads // shards,
        kv_heads=model.heads // shards if latent else max(1, model.kv_heads // shards),
        seq_q=layout.seq * over_heads // layout.cp,
        seq_k=layout.seq,
        head_dim=latent.nope_dim + latent.rope_dim if latent else model.head_dim,
        value_dim=latent.value_dim if latent else model.head_dim,
        window=kind.window,
    )


def head_gemm(model: Model, layout: Layout, *, share: float = 1.0) -> Gemm:
    """The output layer on one rank; `share` of the vocabulary where it is spread over stages."""
    shards = layout.tp if layout.vocabulary_over_tp else 1
    columns = max(1, round(padded_vocab(model, layout) * share / shards))
    return Gemm("head", layout.tokens, columns, model.embedding_width or model.hidden)


def padded_vocab(model: Model, layout: Layout) -> int:
    """Rows of the embedding as trained: up to a multiple of tp where the vocabulary is split over tp."""
    unit = layout.tp if layout.vocabulary_over_tp else 1
    return -(-model.vocab // unit) * unit


def _attention_gemms(model: Model, layout: Layout) -> tuple[Gemm, ...]:
    tokens, tp = layout.tokens, layout.tp
    output = Gemm("attention_output", tokens, model.hidden, model.value_width // tp)
    latent = model.latent
    if latent is None:
        columns = (model.query_width // tp) + 2 * max(1, model.kv_heads // tp) * model.head_dim
        return Gemm("qkv", tokens, columns, model.hidden), output
    own = max(1, tokens // layout.sequence_shards)  # the low-rank products are not split over tp
    rank = latent.key_value_rank
    key_value = model.heads * (latent.nope_dim + latent.value_dim) // tp
    down = Gemm("key_value_down", own, rank + latent.rope_dim, model.hidden)
    up = Gemm("key_value_up", tokens, key_value, rank)
    query_columns = model.query_width // tp
    if not latent.query_rank:
        return Gemm("query", tokens, query_columns, model.hidden), down, up, output
    query_down = Gemm("query_down", own, latent.query_rank, model.hidden)
    return query_down, Gemm("query_up", tokens, query_columns, latent.query_rank), down, up, output


def _mlp_gemms(model: Model, layout: Layout, kind: LayerKind) -> tuple[Gemm, ...]:
    if not kind.mixture:
        return _mlp(model, layout.tokens, model.ffn // layout.tp, "mlp")
    experts = model.experts
    assert experts is not None
    own = max(1, layout.tokens // layout.sequence_shards)
    products = [Gemm("router", own, experts.count, model.hidden)]
    if experts.shared_ffn:
        products += _mlp(model, layout.tokens, experts.shared_ffn // layout.tp, "shared")
    width = max(1, experts.ffn // layout.expert_shards)
    products += _mlp(model, expert_tokens(model, layout), width, "expert", experts.count // layout.ep)
    return tuple(products)


def _mlp(model: Model, tokens: int, width: int, name: str, count: int = 1) -> tuple[Gemm, ...]:
    inner = 2 if model.gated_mlp else 1
    up = Gemm(f"{name}_up", tokens, inner * width, model.hidden, count)
    return up, Gemm(f"{name}_down", tokens, model.hidden, width, count)


def expert_tokens(model: Model, layout: Layout) -> int:
    """Rows that reach each local expert, with routing evenly spread."""
    experts = model.experts
    assert experts is not None
    block = layout.ep * layout.expert_shards / layout.tp  # tensor-parallel groups that pool their tokens
    return max(1, round(layout.tokens * experts.per_token * block / experts.count))


def forward_flops_per_token(model: Model, seq: int, *, causal: bool = False) -> float:
    """FLOPs of the forward of one token in a sequence of `seq`, output layer included."""
    return _layers_flops(model, seq, causal) + head_flops_per_token(model)


def head_flops_per_token(model: Model) -> int:
    """FLOPs of the output layer's forward for one token: 2·vocab·hidden."""
    return 2 * model.vocab * (model.embedding_width or model.hidden)


@lru_cache(maxsize=4096)
def layer_flops_per_token(model: Model, kind: LayerKind, seq: int, *, causal: bool = False) -> float:
    """FLOPs of the forward of one token in one layer."""
    one = Layout(seq=seq)
    products = sum(gemm.flops for gemm in _attention_gemms(model, one)) / seq
    shape = attention(model, one, kind)
    if kind.mixture:
        products += _mixture_flops(model)
    else:
        products += sum(gemm.flops for gemm in _mlp_gemms(model, one, kind)) / seq
    return products + (shape.attended_flops if causal else shape.flops) / seq


def _mixture_flops(model: Model) -> int:
    experts = model.experts
    assert experts is not None
    width = experts.shared_ffn + experts.per_token * experts.ffn
    return 2 * model.hidden * (experts.count + (3 if model.gated_mlp else 2) * width)


def _layers_flops(model: Model, seq: int, causal: bool) -> float:
    return sum(layer_flops_per_token(model, kind, seq, causal=causal) for kind in model.kinds())


def model_flops(model: Model, *, tokens: float, seq: int, causal: bool = False) -> float:
    """FLOPs of forward and backward of `tokens` tokens, without recomputation: what MFU counts."""
    return 3 * tokens * forward_flops_per_token(model, seq, causal=causal)


def hardware_flops(model: Model, layout: Layout, *, causal: bool = False) -> float:
    """FLOPs of one step of the whole job with what is recomputed: what HFU counts.

    Full recomputation repeats the forward of its layers (Narayanan's factor 4 in place of 3), selective
    recomputation that of the modules it names.
    """
    tokens, seq = layout.tokens_per_step, layout.seq
    once = model_flops(model, tokens=tokens, seq=seq, causal=causal)
    if layout.recompute == "none":
        return once
    share = 1.0
    if layout.recompute_layers is not None:
        share = min(1.0, layout.recompute_layers * layout.stages / model.layers)
    if layout.recompute == "full":
        return once + share * tokens * _layers_flops(model, seq, causal)
    repeated = sum(_repeated_flops(model, layout, kind, causal=causal) for kind in model.kinds())
    return once + share * tokens * repeated


@lru_cache(maxsize=4096)
def _repeated_flops(model: Model, layout: Layout, kind: LayerKind, *, causal: bool) -> float:
    """What selective recomputation repeats for one token of a layer: scores and values, the MLP's first product."""
    flops = 0.0
    if "core_attention" in layout.recompute_modules:
        shape = attention(model, Layout(seq=layout.seq), kind)
        flops += (shape.attended_flops if causal else shape.flops) / layout.seq
    if "mlp" in layout.recompute_modules:
        whole = _mixture_flops(model) if kind.mixture else sum(g.flops for g in _mlp(model, 1, model.ffn, "mlp"))
        flops += whole * (2 / 3 if model.gated_mlp else 1 / 2)
    return flops
