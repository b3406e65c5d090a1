"""Prices of steps: what they are made of, and what makes them dearer."""

import pytest

from pipesim.costs.clusters.gpu import find_gpu
from pipesim.serving.build import instance_of
from pipesim.serving.engine import closest_engine, find_engine
from pipesim.serving.formats import UnknownFormat, cache_bytes, weight_format
from pipesim.serving.kernels import all_reduce_seconds, memory_rate, product_seconds
from tests.serving.flat import deployment


@pytest.mark.parametrize(
    ("text", "name"),
    [("fp16", "fp16"), ("bf16", "bf16"), ("fp8 (guide config)", "fp8"), ("NVFP4", "fp4"), ("AWQ 4-bit", "int4"),
     ("w4a16", "int4"), ("int8", "int8"), ("W8A8 fp8", "fp8")],
)  # fmt: skip
def test_formats_are_found_in_free_text(text: str, name: str) -> None:
    assert weight_format(text).name == name


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UnknownFormat, match="unknown weight format 'ternary'; known: fp32, bf16"):
        weight_format("ternary")


def test_a_format_without_units_is_multiplied_in_16_bits() -> None:
    assert weight_format("fp8").multiplies_in(find_gpu("a100")) == "bf16"
    assert weight_format("fp8").multiplies_in(find_gpu("h100")) == "fp8"
    assert weight_format("int4").multiplies_in(find_gpu("h100")) == "bf16"


def test_engines_are_found_in_free_text() -> None:
    assert closest_engine("TensorRT-LLM (2024) benchmark.py").name == "trt-llm-static"
    assert closest_engine("NIM 1.8.0 (TensorRT-LLM)").name == "trt-llm"
    assert closest_engine("ds-inference int8").name == "deepspeed-inference"
    assert closest_engine("something of our own").name == "vllm"


def test_a_few_rows_take_as_long_as_reading_the_weights() -> None:
    gpu, half = find_gpu("a100"), weight_format("fp16")
    few = product_seconds(gpu, 1.0, 8192, 8192, weights=half)
    assert few == pytest.approx(8192 * 8192 * 2 / memory_rate(gpu), rel=0.01)
    assert product_seconds(gpu, 16.0, 8192, 8192, weights=half) == pytest.approx(few, rel=0.02)
    assert product_seconds(gpu, 4096.0, 8192, 8192, weights=half) > 10 * few


def test_narrow_weights_are_read_faster_and_converted_ones_slower() -> None:
    gpu = find_gpu("a100")
    whole = product_seconds(gpu, 1.0, 8192, 8192, weights=weight_format("fp16"))
    assert product_seconds(gpu, 1.0, 8192, 8192, weights=weight_format("int4")) < 0.3 * whole
    converted = product_seconds(gpu, 1.0, 8192, 8192, weights=weight_format("int8"), converted_bytes=5.0)
    assert converted == pytest.approx(2.5 * whole, rel=0.01)


def test_small_all_reduces_are_bound_by_latency_and_faster_in_one_shot() -> None:
    cluster = deployment().cluster
    ranks = tuple(range(8))
    small, double = (all_reduce_seconds(cluster, size, ranks, kind="nccl") for size in (8192.0, 16384.0))
    assert double < 1.2 * small
    assert all_reduce_seconds(cluster, 8192.0, ranks, kind="one-shot") < small
    large = [all_reduce_seconds(cluster, 64e6, ranks, kind=kind) for kind in ("nccl", "one-shot")]
    assert large[0] == large[1]


def test_a_step_grows_with_cached_tokens_and_with_rows() -> None:
    stage = instance_of(deployment(tp=1)).stages[0]
    short = stage.seconds(tokens=8, sequences=8, cached=8 * 100.0, rows=8)
    long = stage.seconds(tokens=8, sequences=8, cached=8 * 4100.0, rows=8)
    size = 2 * 8 * 128 * 2 * 32  # keys and values of 8 heads in bf16, 32 layers
    assert long - short == pytest.approx(8 * 4000 * size / memory_rate(stage.place.gpu))
    assert stage.rows_s[256] > stage.rows_s[1] > stage.rows_s[0]


def test_graphs_save_the_start_of_kernels() -> None:
    launched = instance_of(deployment(engine=find_engine("trt-llm-static"), tokens=512, batch=64)).stages[0]
    captured = instance_of(deployment(engine=find_engine("trt-llm"), tokens=512, batch=64)).stages[0]
    assert launched.tokens_s[1] > captured.tokens_s[1] + 32 * 9 * 5e-6


def test_grouped_heads_cache_less_and_latent_attention_least() -> None:
    from pipesim.serving.memory import layer_token_bytes

    grouped, plain, latent = (deployment(name).model for name in ("llama-3-70b", "llama-2-13b", "deepseek-v3"))
    assert layer_token_bytes(grouped, 1, 2.0) == 2 * 8 * 128 * 2
    assert layer_token_bytes(grouped, 16, 2.0) == 2 * 1 * 128 * 2  # copied, not split further
    assert layer_token_bytes(plain, 1, 2.0) == 2 * 40 * 128 * 2
    assert layer_token_bytes(latent, 8, 2.0) == (512 + 64) * 2  # every rank holds it


def test_windows_bound_what_decoding_reads() -> None:
    stage = instance_of(deployment("gemma-2-9b")).stages[0]
    assert stage.windows
    far = stage.seconds(tokens=1, sequences=1, cached=1e6, rows=1)
    nearer = stage.seconds(tokens=1, sequences=1, cached=5e5, rows=1)
    assert far - nearer == pytest.approx(5e5 * stage.cached_s, abs=1e-9)


def test_few_tokens_wake_few_experts() -> None:
    made = deployment("mixtral-8x7b", tp=2)
    stage = instance_of(made).stages[0]
    assert stage.tokens_s[1] < 0.5 * stage.tokens_s[64]


def test_a_cache_in_fp8_takes_half() -> None:
    assert cache_bytes("fp8") == 1.0
    assert cache_bytes("bf16") == 2.0
    wide, narrow = (instance_of(deployment(cache_bytes=size)).stages[0].cached_s for size in (2.0, 1.0))
    assert narrow == pytest.approx(wide / 2)
