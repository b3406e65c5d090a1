"""Tiny random models that the `transformers` library saves, and what it computes with them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TOKENS = torch.arange(24).view(2, 12) * 7 % 64
ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "tied": {"tie_word_embeddings": True, "rope_parameters": ROPE},
    "mistral": {"model_type": "mistral", "sliding_window": 5},
    "qwen3": {"model_type": "qwen3", "head_dim": 8},
}


@cache
def _classes() -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def make(folder: Path, kind: str, **changes: Any) -> Any:
    """Save a model of a kind; the model itself."""
    small: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "initializer_range": 0.3,
        "max_position_embeddings": 64,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    values = small | KINDS[kind] | changes
    library = _classes()
    torch.manual_seed(0)
    config = library.AutoConfig.for_model(values.pop("model_type"), **values)
    model = library.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, 0.7, 0.2)  # norms and biases that make a difference
    model.save_pretrained(folder)
    return model.eval()


def logits_of(model: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(TOKENS).logits
    return found


def load(folder: Path) -> Any:
    return _classes().AutoModelForCausalLM.from_pretrained(folder).eval()
