"""Reads a Hugging Face `config.json` into a `Model`: what each architecture calls its numbers.

Where a field may be absent, the value is the default of that architecture's configuration class in the
`transformers` library (https://github.com/huggingface/transformers, `configuration_<type>.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipesim.costs.models.config_fields import Fields
from pipesim.costs.models.hf_dense import (
    Values,
    bloom,
    falcon,
    gemma,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    llama,
    mistral,
    mpt,
    opt,
    qwen2,
    qwen3,
)
from pipesim.costs.models.model import BadModel, Experts, LatentAttention, Model
from pipesim.errors import PipesimError


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
        llama(probe)
        raise UnknownArchitecture(source, model_type or "(none given)", tuple(probe.missing))
    values = reader(fields)
    fields.raise_problems(model_type)
    try:
        return Model(**{"name": name, "architecture": model_type, **values})  # type: ignore[arg-type]
    except BadModel as error:
        raise BadModel(source, error.problem) from None


def _mixtral(c: Fields) -> Values:
    ffn = c.whole("intermediate_size")
    count, per_token = c.whole("num_local_experts", default=8), c.whole("num_experts_per_tok", default=2)
    experts = Experts(count=count, per_token=per_token, ffn=ffn)
    return {**mistral(c), "experts": experts}


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
    return {**qwen2(c), "experts": _qwen_experts(c, shared=True)}


def _qwen3_moe(c: Fields) -> Values:
    return {**qwen3(c), "experts": _qwen_experts(c, shared=False)}


def _deepseek(c: Fields) -> Values:
    latent = LatentAttention(
        query_rank=c.optional("q_lora_rank") or 0,
        key_value_rank=c.whole("kv_lora_rank"),
        nope_dim=c.whole("qk_nope_head_dim"),
        rope_dim=c.whole("qk_rope_head_dim"),
        value_dim=c.whole("v_head_dim"),
    )
    predicted = c.whole("num_nextn_predict_layers", default=0, least=0)
    common = {**llama(c), "latent": latent, "predicted_layers": predicted}
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
    "llama": llama,
    "mistral": mistral,
    "phi3": mistral,
    "mixtral": _mixtral,
    "qwen2": qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "opt": opt,
    "bloom": bloom,
    "falcon": falcon,
    "RefinedWeb": falcon,
    "RefinedWebModel": falcon,
    "mpt": mpt,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}
