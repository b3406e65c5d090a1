"""What each dense architecture calls its numbers in a Hugging Face `config.json`.

Where a field may be absent, the value is the default of that architecture's configuration class in the
`transformers` library (https://github.com/huggingface/transformers, `configuration_<type>.py`).
"""

from __future__ import annotations

from pipesim.costs.models.config_fields import Fields

Values = dict[str, object]


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


def llama(c: Fields) -> Values:
    """Llama 2 and 3."""
    bias = c.flag("attention_bias", default=False)
    return {
        **_common(c),
        "ffn": c.whole("intermediate_size"),
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": c.flag("mlp_bias", default=False),
    }


def mistral(c: Fields) -> Values:
    """Mistral and Phi-3: a Llama, perhaps with a sliding window."""
    return {**llama(c), "sliding_window": c.optional("sliding_window")}


def qwen2(c: Fields) -> Values:
    """Qwen2 and 2.5: biases on queries, keys and values."""
    values = {**llama(c), "qkv_bias": True, "output_bias": False}
    if c.flag("use_sliding_window", default=False):
        values["sliding_window"] = c.optional("sliding_window")
        values["full_attention_from"] = c.whole("max_window_layers", default=28, least=0)
    return values


def qwen3(c: Fields) -> Values:
    """Qwen3: a norm on queries and keys."""
    bias = c.flag("attention_bias", default=False)
    head_dim = c.whole("head_dim", default=128)
    return {**qwen2(c), "head_dim": head_dim, "qkv_bias": bias, "output_bias": bias, "qk_norm": "head"}


def gemma(c: Fields) -> Values:
    """Gemma: wide heads, tied embeddings."""
    tied = c.flag("tie_word_embeddings", default=True)
    head_dim = c.whole("head_dim", default=256)
    activation = c.text("hidden_activation", "hidden_act", default="gelu_pytorch_tanh")
    return {**llama(c), "tied_embeddings": tied, "head_dim": head_dim, "activation": activation}


def gemma2(c: Fields) -> Values:
    """Gemma 2: four norms a layer, every other layer with a window."""
    window = c.whole("sliding_window", default=4096)
    return {**gemma(c), "norms_per_layer": 4, "sliding_window": window, "full_attention_every": 2}


def gemma3(c: Fields) -> Values:
    """Text part of Gemma 3: five layers of six with a window."""
    c = c.with_defaults(num_attention_heads=8, num_key_value_heads=4, vocab_size=262208)
    every = c.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return {**gemma2(c), "qk_norm": "head", "full_attention_every": every}


_GPT: Values = {
    "gated_mlp": False, "norm": "layer", "qkv_bias": True, "output_bias": True, "mlp_bias": True,
}  # fmt: skip


def gpt2(c: Fields) -> Values:
    """GPT-2 and GPT-3."""
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


def gpt_neox(c: Fields) -> Values:
    """GPT-NeoX and Pythia."""
    bias = c.flag("attention_bias", default=True)
    activation = c.text("hidden_act", default="gelu")
    ffn = c.whole("intermediate_size")
    return {**_common(c), **_GPT, "ffn": ffn, "qkv_bias": bias, "output_bias": bias, "activation": activation}


def opt(c: Fields) -> Values:
    """OPT."""
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


def bloom(c: Fields) -> Values:
    """BLOOM."""
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


def falcon(c: Fields) -> Values:
    """Falcon, old (one key/value head) and new."""
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


def mpt(c: Fields) -> Values:
    """MPT."""
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
