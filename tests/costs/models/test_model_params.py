"""Parameter counts against published ones."""

import pytest

from pipesim.costs.models.model import Model
from pipesim.costs.models.model_catalog import catalogue_source, load_model, model_names
from pipesim.costs.models.params import parameters

# Sources: "safetensors" is the total that Hugging Face shows on the model's page, from the tensors' shapes.
PUBLISHED = {
    "llama-2-7b": (6_738_415_616, "safetensors"),
    "llama-2-13b": (13_015_864_320, "safetensors"),
    "llama-2-70b": (68_976_648_192, "safetensors"),
    "llama-3-8b": (8_030_261_248, "safetensors"),
    "llama-3-70b": (70_553_706_496, "safetensors"),
    "llama-3.1-405b": (405_853_388_800, "safetensors"),
    "llama-3.2-1b": (1_235_814_400, "safetensors"),
    "llama-3.2-3b": (3_212_749_824, "safetensors"),
    "tiny-llama": (1_100_048_384, "safetensors"),
    "mistral-7b": (7_241_732_096, "safetensors"),
    "mixtral-8x7b": (46_702_792_704, "safetensors"),
    "mixtral-8x22b": (140_620_634_112, "safetensors of v0.1"),
    "qwen2.5-0.5b": (494_032_768, "safetensors"),
    "qwen2.5-1.5b": (1_543_714_304, "safetensors"),
    "qwen2.5-7b": (7_615_616_512, "safetensors"),
    "qwen2.5-14b": (14_770_033_664, "safetensors"),
    "qwen2.5-32b": (32_763_876_352, "safetensors"),
    "qwen2.5-72b": (72_706_203_648, "safetensors"),
    "qwen3-8b": (8_190_735_360, "safetensors"),
    "qwen3-32b": (32_762_123_264, "safetensors"),
    "qwen3-30b-a3b": (30_532_122_624, "safetensors"),
    "qwen3-235b-a22b": (235_093_634_560, "safetensors"),
    "qwen1.5-moe-a2.7b": (14_315_784_192, "safetensors"),
    "gemma-2b": (2_506_172_416, "safetensors"),
    "gemma-7b": (8_537_680_896, "safetensors"),
    "gemma-2-2b": (2_614_341_888, "safetensors"),
    "gemma-2-9b": (9_241_705_984, "safetensors"),
    "gemma-2-27b": (27_227_128_320, "safetensors"),
    "gemma-3-27b": (27_016_000_000, "2503.19786, table 1: 1,416M embedding + 25,600M other"),
    "gpt2": (124_439_808, "safetensors less the attention masks stored with it"),
    "gpt2-xl": (1_557_611_200, "safetensors less the attention masks stored with it"),
    "gpt3-175b": (174_600_000_000, "2005.14165, table D.1"),
    "opt-66b": (66_000_000_000, "2205.01068, table 1"),
    "gpt-neox-20b": (20_554_567_680, "model card: n_parameters"),
    "pythia-12b": (11_846_072_320, "2304.01373, table 1"),
    "falcon-7b": (6_921_720_704, "checkpoint with its tied head counted once"),
    "falcon-40b": (41_303_293_952, "checkpoint with its tied head counted once"),
    "bloom-7b1": (7_069_016_064, "model card"),
    "bloom-176b": (176_247_271_424, "model card"),
    "mpt-7b": (6_649_286_656, "safetensors"),
    "megatron-22b": (22_000_000_000, "2205.05198, table 3"),
    "megatron-145b": (145_600_000_000, "2104.04473, table 1"),
    "megatron-310b": (310_100_000_000, "2104.04473, table 1"),
    "megatron-530b": (529_600_000_000, "2104.04473, table 1"),
    "megatron-1t": (1_008_000_000_000, "2104.04473, table 1"),
    "deepseek-v2-lite": (15_706_484_224, "safetensors"),
    "deepseek-v2": (235_741_434_880, "safetensors"),
    "deepseek-v3": (671_026_419_200, "README_WEIGHTS.md: 671B main model, without the prediction layer"),
}
ROUNDED = {"megatron-22b", "opt-66b"}  # published as "22 billion" and "66B"

# Published as round numbers; DeepSeek and Qwen do not say whether the embedding counts.
ACTIVE = {
    "mixtral-8x7b": (12.9e9, "2401.04088: 13B"),
    "mixtral-8x22b": (39.1e9, "mistral.ai/news/mixtral-8x22b: 39B"),
    "qwen3-30b-a3b": (3.3e9, "model card: 3.3B activated"),
    "qwen3-235b-a22b": (22e9, "model card: 22B activated"),
    "qwen1.5-moe-a2.7b": (2.7e9, "model card: 2.7B activated"),
    "deepseek-v2": (21e9, "2405.04434: 21B activated"),
    "deepseek-v3": (37e9, "2412.19437: 37B activated"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_equal_the_published_count(name: str) -> None:
    published, source = PUBLISHED[name]
    tolerance = 5e-3 if name in ROUNDED else 1e-3
    assert parameters(load_model(name)).total == pytest.approx(published, rel=tolerance), source


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_equal_the_published_ones_to_their_rounding(name: str) -> None:
    published, source = ACTIVE[name]
    assert parameters(load_model(name)).active == pytest.approx(published, rel=0.02), source


def test_components_add_up() -> None:
    for name in model_names():
        counts = parameters(load_model(name))
        named = counts.embedding + counts.positions + counts.attention + counts.mlp + counts.experts
        assert named + counts.router + counts.norms + counts.head == counts.total, name


def test_bloom_embedding_is_the_model_card_s() -> None:
    assert parameters(load_model("bloom-176b")).embedding == 3_596_615_680


def test_every_catalogue_model_names_its_source() -> None:
    assert [name for name in model_names() if not catalogue_source(name)] == []
    assert len(model_names()) >= 50


def test_a_model_of_few_fields_counts_like_the_one_of_its_config() -> None:
    row = {
        "arch": "llama", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256,
        "gated_mlp": True, "tied_embeddings": False, "unknown": "ignored",
    }  # fmt: skip
    assert parameters(Model.from_fields(row)) == parameters(load_model("llama-3-8b"))


def test_gpt_of_few_fields_has_biases_and_learned_positions() -> None:
    row = {"arch": "gpt", "layers": 96, "hidden": 12288, "heads": 96, "ffn": 49152, "vocab": 50257, "seq": 2048}
    assert parameters(Model.from_fields(row)).total == parameters(load_model("gpt3-175b")).total
