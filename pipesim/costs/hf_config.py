"""Reads a Hugging Face `config.json` into a `Model`: what each architecture calls its numbers.

Where a field may be absent, the value is the default of that architecture's configuration class in the
`transformers` library (https://github.com/huggingface/transformers, `configuration_<type>.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipesim.costs.config_fields import Fields
from pipesim.costs.model import BadModel, Experts, LatentAttention, Model
from pipesim.errors import PipesimError

Values = dict[str, object]


@dataclass(eq=False)
class UnknownArchitecture(PipesimError):
    """A `config.json` of a model type that no reader is written for."""

    source: str
    model_type: str
    missing: tuple[str, ...]

    def __str__(self) -> str:
        lacks = ", ".join(self.missing)
        what = f"it lacks {lacks}" if lacks else 'it has every field of a Llama; set "model_type": "llama"'
        known = ", ".join(sorted(READERS))
        return (
            f"{self.source}: model type {self.model_type!r} is not known; known: {known}. "
            f"To be read as a Llama-like decoder: {what}"
        )


def read_config(config: Mapping[str, object], *, source: str, name: str) -> Model:
    """The `Model` of a parsed `config.json`; `source` is what errors call it."""
    fields = Fields(config, source)
    text = fields.part("text_config")  # a model that also reads images: its language part
    if text is not None:
        fields = text
    model_type = fields.text("model_type", default="")
    reader = READERS.get(model_type)
    if reader is None:
        probe = Fields(fields.values, source)
        _llama(probe)
        raise UnknownArchitecture(source, model_type or "(none given)", tuple(probe.missing))
    values = reader(fields)
    fields.raise_problems(model_type)
    try:
        return Model(**{"name": name, "architecture": model_type, **values})  # type: ignore[arg-type]
    except BadModel as error:
        raise BadModel(source, error.problem) from None


def _common(c: Fields) -> Values:
    """What Llama and all that came after it share."""
    hidden = c.whole("hidden_size", "n_embd", "d_model")
    heads = c.whole("num_attention_heads", "n_head")
    return {
        "hidden": hidden,
        "heads": heads,
        "layers": c.whole("num_hidden_layers", "n_layer"),
        "kv_heads": c.whole("num_key_value_heads", default=heads),
        "head_dim": c.whole("head_dim", default=max(1, hidden // heads)),
        "vocab": c.whole("vocab_size"),
        "max_positions": c.whole("max_position_embeddings", default=2048),
        "activation": c.text("hidden_act", "hidden_activation", default="silu"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
        "dropout": c.any_positive("attention_dropout", "hidden_dropout"),
    }


def _llama(c: Fields) -> Values:
    bias = c.flag("attention_bias", default=False)
    return {
        **_common(c),
        "ffn": c.whole("intermediate_size"),
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": c.flag("mlp_bias", default=False),
    }


def _mistral(c: Fields) -> Values:
    return {**_llama(c), "sliding_window": c.optional("sliding_window")}


def _mixtral(c: Fields) -> Values:
    ffn = c.whole("intermediate_size")
    count, per_token = c.whole("num_local_experts", default=8), c.whole("num_experts_per_tok", default=2)
    experts = Experts(count=count, per_token=per_token, ffn=ffn)
    return {**_mistral(c), "experts": experts}


def _qwen2(c: Fields) -> Values:
    values = {**_llama(c), "qkv_bias": True, "output_bias": False}
    if c.flag("use_sliding_window", default=False):
        values["sliding_window"] = c.optional("sliding_window")
        values["full_attention_from"] = c.whole("max_window_layers", default=28, least=0)
    return values


def _qwen3(c: Fields) -> Values:
    bias = c.flag("attention_bias", default=False)
    head_dim = c.whole("head_dim", default=128)
    return {**_qwen2(c), "head_dim": head_dim, "qkv_bias": bias, "output_bias": bias, "qk_norm": "head"}


def _qwen_experts(c: Fields, *, shared: bool) -> Experts:
    if c.values.get("mlp_only_layers"):
        c.problem("mlp_only_layers is not supported: it must be empty")
    return Experts(
        count=c.whole("num_experts"),
        per_token=c.whole("num_experts_per_tok"),
        ffn=c.whole("moe_intermediate_size"),
        shared_ffn=c.whole("shared_expert_intermediate_size") if shared else 0,
        shared_gate=shared,
        every=c.whole("decoder_sparse_step", default=1),
    )


def _qwen2_moe(c: Fields) -> Values:
    return {**_qwen2(c), "experts": _qwen_experts(c, shared=True)}


def _qwen3_moe(c: Fields) -> Values:
    return {**_qwen3(c), "experts": _qwen_experts(c, shared=False)}


def _gemma(c: Fields) -> Values:
    tied = c.flag("tie_word_embeddings", default=True)
    head_dim = c.whole("head_dim", default=256)
    activation = c.text("hidden_activation", "hidden_act", default="gelu_pytorch_tanh")
    return {**_llama(c), "tied_embeddings": tied, "head_dim": head_dim, "activation": activation}


def _gemma2(c: Fields) -> Values:
    window = c.whole("sliding_window", default=4096)
    return {**_gemma(c), "norms_per_layer": 4, "sliding_window": window, "full_attention_every": 2}


def _gemma3(c: Fields) -> Values:
    c = c.with_defaults(num_attention_heads=8, num_key_value_heads=4, vocab_size=262208)
    every = c.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return {**_gemma2(c), "qk_norm": "head", "full_attention_every": every}


_GPT: Values = {
    "gated_mlp": False, "norm": "layer", "qkv_bias": True, "output_bias": True, "mlp_bias": True,
}  # fmt: skip


def _gpt2(c: Fields) -> Values:
    common = _common(c)
    positions = c.whole("n_positions", "n_ctx", default=1024)
    return {
        **common,
        **_GPT,
        "ffn": c.optional("n_inner") or 4 * c.whole("n_embd", "hidden_size"),
        "activation": c.text("activation_function", default="gelu_new"),
        "max_positions": positions,
        "positions": "learned",
        "position_rows": positions,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
        "dropout": c.any_positive("attn_pdrop", "resid_pdrop", "embd_pdrop", default=0.1),
    }


def _gpt_neox(c: Fields) -> Values:
    bias = c.flag("attention_bias", default=True)
    activation = c.text("hidden_act", default="gelu")
    ffn = c.whole("intermediate_size")
    return {**_common(c), **_GPT, "ffn": ffn, "qkv_bias": bias, "output_bias": bias, "activation": activation}


def _opt(c: Fields) -> Values:
    positions = c.whole("max_position_embeddings", default=2048)
    hidden = c.whole("hidden_size")
    bias = c.flag("enable_bias", default=True)
    width = c.whole("word_embed_proj_dim", default=hidden)
    return {
        **_common(c),
        **_GPT,
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), bias),
        "ffn": c.whole("ffn_dim"),
        "activation": c.text("activation_function", default="relu"),
        "positions": "learned",
        "position_rows": positions + 2,  # the first two rows are kept for padding
        "embedding_width": 0 if width == hidden else width,
        "final_norm": c.flag("do_layer_norm_before", default=True) and not c.flag("_remove_final_layer_norm"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
        "dropout": c.any_positive("dropout", "attention_dropout", default=0.1),
    }


def _bloom(c: Fields) -> Values:
    hidden = c.whole("hidden_size", "n_embed", "n_embd")
    return {
        **_common(c.with_defaults(hidden_size=hidden)),
        **_GPT,
        "ffn": 4 * hidden,
        "activation": "gelu",
        "max_positions": c.whole("seq_length", default=2048),
        "positions": "alibi",
        "embedding_norm": True,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }


def _falcon(c: Fields) -> Values:
    common = _common(c)
    new = c.flag("new_decoder_architecture", default=False)
    heads = c.whole("num_attention_heads", "n_head")
    old_kv_heads = 1 if c.flag("multi_query", default=True) else heads
    bias = c.flag("bias", default=False)
    norms = c.whole("num_ln_in_parallel_attn", default=2) if new else 1
    return {
        **common,
        **_GPT,
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), bias),
        "kv_heads": c.whole("num_kv_heads", "n_head_kv", default=heads) if new else old_kv_heads,
        "ffn": c.whole("ffn_hidden_size", default=4 * c.whole("hidden_size")),
        "norms_per_layer": norms if c.flag("parallel_attn", default=True) else 2,
        "activation": c.text("activation", default="gelu"),
        "positions": "alibi" if c.flag("alibi", default=False) else "rotary",
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }


def _mpt(c: Fields) -> Values:
    attention = c.part("attn_config") or Fields({}, c.source)
    alibi = attention.flag("alibi", default=False)
    bias = not c.flag("no_bias", default=False)
    hidden, positions, heads = c.whole("d_model"), c.whole("max_seq_len", default=2048), c.whole("n_heads")
    width = c.with_defaults(num_attention_heads=heads, num_hidden_layers=c.whole("n_layers"))
    return {
        **_common(width),
        **_GPT,
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), bias),
        "norm": "layer" if bias else "rms",  # its LayerNorm without bias has one row of weights, like RMS
        "ffn": c.whole("expansion_ratio", default=4) * hidden,
        "kv_heads": attention.whole("kv_n_heads", default=heads),
        "activation": "gelu",
        "max_positions": positions,
        "positions": "alibi" if alibi else "learned",
        "position_rows": 0 if alibi else positions,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }


def _deepseek(c: Fields) -> Values:
    latent = LatentAttention(
        query_rank=c.optional("q_lora_rank") or 0,
        key_value_rank=c.whole("kv_lora_rank"),
        nope_dim=c.whole("qk_nope_head_dim"),
        rope_dim=c.whole("qk_rope_head_dim"),
        value_dim=c.whole("v_head_dim"),
    )
    predicted = c.whole("num_nextn_predict_layers", default=0, least=0)
    common = {**_llama(c), "latent": latent, "predicted_layers": predicted}
    routed = c.optional("n_routed_experts")
    if routed is None:
        return common
    ffn = c.whole("moe_intermediate_size")
    experts = Experts(
        count=routed,
        per_token=c.whole("num_experts_per_tok"),
        ffn=ffn,
        shared_ffn=ffn * (c.optional("n_shared_experts") or 0),
        first_dense=c.whole("first_k_dense_replace", default=0, least=0),
        every=c.whole("moe_layer_freq", default=1),
        router_bias=c.text("topk_method", default="") == "noaux_tc",
    )
    return {**common, "experts": experts}


READERS: dict[str, Callable[[Fields], Values]] = {
    "llama": _llama,
    "mistral": _mistral,
    "phi3": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "bloom": _bloom,
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "mpt": _mpt,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}
