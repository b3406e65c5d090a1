"""Decoders from a `config.json`, old and new spelling, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pipesim.backends.model.config import CannotBuild, Rope, load_decoder, read_decoder, tiny_decoder
from pipesim.costs.models.config_fields import BadConfig

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def read(**changes: Any) -> Any:
    return read_decoder(LLAMA | changes, source="config.json", name="small")


def test_rope_in_both_spellings() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
    old = read(rope_theta=5e5, rope_scaling={"type": "llama3", **scaling})
    new = read(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **scaling})
    assert old.rope == new.rope == Rope(5e5, "llama3", 8.0, 1.0, 4.0, 512)


def test_stop_tokens_may_be_one_several_or_none() -> None:
    assert [read(eos_token_id=given).stop_tokens for given in (2, [2, 7], None)] == [(2,), (2, 7), ()]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type yarn cannot be run"),
        ({"hidden_act": "tanh"}, "activation tanh cannot be run; can be: silu"),
        ({"hidden_size": 20}, "head_dim 5 cannot be run"),
        ({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2}, "architecture gpt2 cannot be run"),
    ],
)
def test_what_is_not_written_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CannotBuild, match=message):
        read(**changes)


def test_numbers_of_a_config_are_checked() -> None:
    with pytest.raises(BadConfig, match="rms_norm_eps = 'small' must be a number above 0"):
        read(rms_norm_eps="small")


def test_names() -> None:
    assert load_decoder("tiny-llama") == tiny_decoder()
    assert load_decoder("llama-3.2-1b").model.tied_embeddings
