"""What a decoder is made of: the numbers of `pipesim.costs.models.model`, and what only running needs to know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipesim.costs.models.config_fields import BadConfig
from pipesim.costs.models.hf_config import read_config
from pipesim.costs.models.model import Model
from pipesim.costs.models.model_catalog import CATALOG, load_model, model_names
from pipesim.errors import PipesimError
from pipesim.files import read_text

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu")
TINY = "tiny-llama"


@dataclass(eq=False)
class CannotBuild(PipesimError):
    """A model that can be simulated but that no stages are written for."""

    model: str
    problem: str
    works: str

    def __str__(self) -> str:
        return f"model {self.model}: {self.problem} cannot be run; {self.works}"


@dataclass(frozen=True)
class Rope:
    """Rotary positions: base, and how they are stretched for long contexts.

    kind: `default`; `linear` (positions divided by `factor`); `llama3` (long wave lengths only, Llama 3.1).
    """

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True)
class DecoderConfig:
    """One decoder. raw: the `config.json` it was read from, for export."""

    model: Model
    rope: Rope = Rope()
    norm_eps: float = 1e-6
    init_std: float = 0.02
    stop_tokens: tuple[int, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    def __post_init__(self) -> None:
        model = self.model
        if model.architecture not in ARCHITECTURES:
            raise CannotBuild(model.name, f"architecture {model.architecture}", f"can be: {', '.join(ARCHITECTURES)}")
        if model.activation not in ACTIVATIONS:
            raise CannotBuild(model.name, f"activation {model.activation}", f"can be: {', '.join(ACTIVATIONS)}")
        if model.head_dim % 2:
            raise CannotBuild(model.name, f"head_dim {model.head_dim}", "rotary positions need an even one")


def read_decoder(config: Mapping[str, Any], *, source: str, name: str) -> DecoderConfig:
    """The decoder of a parsed `config.json`. Raises BadConfig, BadModel, CannotBuild."""
    model = read_config(config, source=source, name=name)
    eps, std = _above_0(config, source, "rms_norm_eps", 1e-6), _above_0(config, source, "initializer_range", 0.02)
    return DecoderConfig(model, _rope(config, source, model), eps, std, _stop(config), dict(config))


def _above_0(config: Mapping[str, Any], source: str, name: str, default: float) -> float:
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise BadConfig(source, f"{name} = {value!r} must be a number above 0")
    return float(value)


def load_decoder(name: str) -> DecoderConfig:
    """By catalogue name (`tiny-llama` is the small built-in one), a `config.json`, or a folder that holds one."""
    known = name.lower().replace("_", "-")
    if known == TINY and not Path(name).exists():
        return tiny_decoder()
    if "/" not in name and known in model_names():
        path = CATALOG / f"{known}.json"
    else:
        load_model(name)  # says what is wrong with the name
        path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
        known = path.resolve().parent.name if path.name == "config.json" else path.stem
    return read_decoder(json.loads(read_text(path)), source=str(path), name=known)


def tiny_decoder(**changes: Any) -> DecoderConfig:
    """A decoder of 8 layers over bytes that two CPU cores train; `changes` are fields of a `config.json`."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 256,
        "max_position_embeddings": 1024,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "initializer_range": 0.02,
    }
    return read_decoder(config | changes, source=TINY, name=TINY)


def _rope(config: Mapping[str, Any], source: str, model: Model) -> Rope:
    """From `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling`."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise BadConfig(source, f"rope_scaling = {given!r} must be an object")
    theta = given.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise CannotBuild(model.name, f"rope type {kind}", "can be: default, linear, llama3")
    if config.get("partial_rotary_factor", given.get("partial_rotary_factor", 1.0)) != 1.0:
        raise CannotBuild(model.name, "partial_rotary_factor", "positions must turn whole heads")
    return Rope(
        float(theta),
        kind,
        float(given.get("factor", 1.0)),
        float(given.get("low_freq_factor", 1.0)),
        float(given.get("high_freq_factor", 4.0)),
        int(given.get("original_max_position_embeddings", 8192)),
    )


def _stop(config: Mapping[str, Any]) -> tuple[int, ...]:
    given = config.get("eos_token_id")
    if isinstance(given, list):
        return tuple(int(token) for token in given)
    return () if given is None else (int(given),)
