"""Times of kernels: equal to what was measured at measured points, sane between and beyond them."""

import csv
import math
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.costs.clusters.fitted import derate
from pipesim.costs.clusters.gpu import NoSuchPrecision, UnknownPrecision, find_gpu, gpu_keys, precision_name
from pipesim.costs.kernel_tables import Axis, Grid, read_table
from pipesim.costs.times.compute import (
    attention_seconds,
    gemm_seconds,
    kernel_table,
    kernels,
    keys_per_query,
    memory_seconds,
)

DATA = Path(__file__).parents[2] / "data" / "kernels"
SIZES = st.integers(min_value=1, max_value=1 << 17)


@pytest.mark.parametrize("name", ["a100", "h100", "h200", "b200", "gb200", "l40s"])
def test_products_equal_the_table_where_it_was_measured(name: str) -> None:
    gpu = find_gpu(name)
    table = read_table(f"gemm_{name}_bf16")
    for (m, n, k), seconds in list(table.seconds.items())[::29]:
        assert gemm_seconds(gpu, m, n, k) * derate(gpu).gemm == pytest.approx(seconds, rel=1e-9)


ALONE = {"a100-pcie": 0.88, "a100-sxm": 0.97, "b200-sxm": 0.74}
"""What products alone sustain of the burst tables, medians of benchmarks/fit/derates.py; in a step they reach less."""


def test_sustained_products_of_training_shapes() -> None:
    """Figures of others, all three directions; not in the tables, but one number a GPU was fitted to them."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with (DATA / "sustained.csv").open() as file:
        for row in csv.DictReader(file):
            batch, m, n, k = (int(row[name]) for name in ("batch", "m", "n", "k"))
            if 2 * batch * m * n * k >= 1e10:
                accumulate = row["direction"] == "weight"
                gpu = find_gpu(row["gpu"])
                ours = gemm_seconds(gpu, m, n, k, batch=batch, accumulate=accumulate)
                ours *= derate(gpu).gemm / ALONE[row["gpu"]]
                found[row["gpu"], row["source"]].append(abs(ours / (float(row["us"]) * 1e-6) - 1))
    errors = {key: round(median(values), 3) for key, values in found.items()}
    assert errors == {
        ("a100-pcie", "simumax"): pytest.approx(0.03, abs=0.02),
        ("b200-sxm", "simumax"): pytest.approx(0.09, abs=0.03),
        ("a100-sxm", "azure"): pytest.approx(0.04, abs=0.03),
        ("a100-sxm", "llmcompass"): pytest.approx(0.09, abs=0.03),
    }


@given(SIZES, SIZES, SIZES, st.sampled_from(["a100", "h100", "b200", "gb300", "mi300x", "rtx-4090"]))
def test_no_product_beats_the_peak_or_the_shortest_kernel(m: int, n: int, k: int, name: str) -> None:
    gpu = find_gpu(name)
    seconds = gemm_seconds(gpu, m, n, k)
    assert math.isfinite(seconds)
    assert seconds >= max(2.0 * m * n * k / gpu.peak("bf16") * 0.99, 0.5 * derate(gpu).floor_s)


def test_a_partial_tile_costs_a_whole_one() -> None:
    gpu = find_gpu("h100")
    assert gemm_seconds(gpu, 4096, 4096 + 1, 4096) >= gemm_seconds(gpu, 4096, 4096 + 128, 4096) * 0.99


def test_small_shapes_are_inefficient() -> None:
    gpu = find_gpu("h100")
    shares = [2 * m**3 / gemm_seconds(gpu, m, m, m) / gpu.peak("bf16") for m in (128, 512, 2048, 8192)]
    assert shares == sorted(shares)
    assert shares[0] < 0.02
    assert shares[-1] > 0.6


def test_a_weight_gradient_is_slower_than_a_plain_product() -> None:
    gpu = find_gpu("a100")
    plain, added = (gemm_seconds(gpu, 4096, 4096, 4096, accumulate=accumulate) for accumulate in (False, True))
    assert added == pytest.approx(plain / 0.94)


def test_a_gpu_without_a_table_scales_the_nearest_one() -> None:
    v100, a100 = find_gpu("v100"), find_gpu("a100")
    ratio = gemm_seconds(v100, 8192, 8192, 8192, precision="fp16") / gemm_seconds(a100, 8192, 8192, 8192)
    assert ratio == pytest.approx(312 / 125 * derate(a100).gemm / derate(v100).gemm, rel=0.01)
    assert kernels(v100).measured_on == "A100-SXM4-80GB"
    assert kernel_table(find_gpu("h200"), "fp8") == "gemm_h200_fp8"


def test_eight_bits_are_faster_where_there_are_units_for_them() -> None:
    gpu = find_gpu("h100")
    ratio = gemm_seconds(gpu, 8192, 8192, 8192) / gemm_seconds(gpu, 8192, 8192, 8192, precision="fp8")
    assert 1.3 < ratio < 2.0
    with pytest.raises(NoSuchPrecision, match="A100-SXM4-80GB has no fp8 matrix units; it has fp32, tf32, fp16, bf16"):
        gemm_seconds(find_gpu("a100"), 1024, 1024, 1024, precision="fp8")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bf16", "bf16"),
        ("amp_bf16", "bf16"),
        ("fp16/bf16", "bf16"),
        ("fp8-cs", "fp8"),
        ("mxfp8", "fp8"),
        ("nvfp4", "fp4"),
        ("AMP_FP16", "fp16"),
    ],
)
def test_words_for_precisions(text: str, name: str) -> None:
    assert precision_name(text) == name


def test_an_unknown_precision() -> None:
    with pytest.raises(UnknownPrecision, match="unknown precision 'int3'; known: fp32, tf32, fp16, bf16, fp8, fp4"):
        precision_name("int3")


def _attention(name: str = "h100", **given: object) -> float:
    shape = {"batch": 1, "heads": 8, "seq_q": 8192, "seq_k": 8192, "head_dim": 128}
    return attention_seconds(find_gpu(name), **(shape | given))  # type: ignore[arg-type]


def test_attention_equals_the_table_where_it_was_measured() -> None:
    seconds = read_table("attention_h100_bf16").seconds[128, 8192, 8]
    assert _attention() == pytest.approx(seconds / derate(find_gpu("h100")).attention, rel=1e-9)


def test_attention_costs_what_it_attends() -> None:
    assert _attention(causal=False) == pytest.approx(2 * _attention(), rel=0.15)
    assert _attention(window=1024) < 0.4 * _attention()
    assert _attention(window=8192) == _attention()
    assert _attention(direction="backward") == pytest.approx(2.5 / 0.8 * _attention())
    assert 1.5 * _attention() < _attention(kind="flash2") < 3 * _attention()
    assert _attention(kind="unfused") > _attention(kind="fused-softmax") > 2 * _attention()


def test_one_devices_share_of_a_longer_sequence() -> None:
    half = _attention(seq_q=4096)  # half the work for as many GPU cores: less than twice as fast
    assert _attention() / 2 < half < _attention() / 1.5


def test_keys_per_query() -> None:
    assert keys_per_query(8, causal=False) == 8
    assert keys_per_query(8, causal=True) == 4
    assert keys_per_query(1000, causal=True, window=100) == pytest.approx(95)
    assert keys_per_query(1000, causal=False, window=100) == 100


def test_work_bound_by_memory() -> None:
    gpu = find_gpu("h100")
    assert memory_seconds(gpu, 3.35e9) == pytest.approx(3e-6 + 1e-3 / derate(gpu).memory)
    assert memory_seconds(gpu, 2.0, kernels=3) == pytest.approx(9e-6)
    assert memory_seconds(gpu, 0.0) == 0.0


@pytest.mark.parametrize("key", gpu_keys())
def test_every_gpu_prices_a_layer(key: str) -> None:
    gpu = find_gpu(key)
    assert gemm_seconds(gpu, 2048, 4096, 1024, precision="fp16") > 0
    assert attention_seconds(gpu, batch=2, heads=16, seq_q=1024, seq_k=1024, head_dim=64) > 0


def test_interpolation_is_straight_in_logarithms() -> None:
    grid = Grid((Axis.of([1]), Axis.of([1, 4]), Axis.of([1, 16])), tuple(map(math.log, [1, 4, 16, 64])))
    assert grid.at(1, 2, 4) == pytest.approx(4 * 2)
    assert grid.at(1, 100, 100) == pytest.approx(64)  # flat outside
    extended = Grid((Axis.of([1]), Axis.of([1]), Axis.of([1, 16], extend=True)), tuple(map(math.log, [1, 4])))
    assert extended.at(1, 1, 1 / 16) == pytest.approx(1 / 4)
