"""Names of GPUs, and that each value of the catalogue has a source."""

from dataclasses import replace

import pytest

from pipesim.costs.catalog_files import UnknownName, read_catalogue
from pipesim.costs.clusters.fitted import derate, fabric, fabric_kinds
from pipesim.costs.clusters.gpu import NoSuchPrecision, find_gpu, gpu_keys
from pipesim.costs.times.compute import attention_seconds


@pytest.mark.parametrize("name", ["h100", "H100-SXM5-80GB", "h100-sxm", " H100-SXM "])
def test_a_gpu_by_any_of_its_names(name: str) -> None:
    assert find_gpu(name) is find_gpu("h100-sxm")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H100 PCIe", "h100-pcie"),
        ("A100 80 GB SXM4", "a100-sxm"),
        ("NVIDIA GB200 NVL72", "gb200"),
        ("GeForce RTX 3090", "rtx-3090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Tesla V100-SXM2-16GB", "v100-sxm-16gb"),
        ("B300", "b300-sxm"),
    ],
)
def test_a_gpu_as_drivers_and_tables_call_it(name: str, key: str) -> None:
    assert find_gpu(name).key == key


def test_an_unknown_gpu() -> None:
    with pytest.raises(UnknownName) as caught:
        find_gpu("h1001")
    assert str(caught.value) == "unknown GPU 'h1001'; did you mean h100 or v100 or h800?"
    with pytest.raises(UnknownName, match="unknown GPU 'zzz'; known: v100-sxm, v100-sxm-16gb, t4, a100-sxm-40gb"):
        find_gpu("zzz")


def test_peaks_of_the_data_sheets() -> None:
    peaks = {
        key: find_gpu(key).peak("fp16") / 1e12 for key in ("v100-sxm", "a100-sxm", "h100-sxm", "b200-sxm", "mi300x")
    }
    assert peaks == {"v100-sxm": 125, "a100-sxm": 312, "h100-sxm": 989, "b200-sxm": 2250, "mi300x": 1307}


def test_a_gpu_that_names_only_bf16_does_attention_too() -> None:
    """The cluster file of the documentation was refused: attention asked for fp16, which its GPU does not list."""
    gpu = replace(find_gpu("h100-sxm"), peaks={"bf16": 989e12})
    assert gpu.peak("fp16") == 989e12
    assert attention_seconds(gpu, batch=1, heads=8, seq_q=2048, seq_k=2048, head_dim=128) > 0
    with pytest.raises(NoSuchPrecision, match="has no fp8 matrix units; it has bf16"):
        gpu.peak("fp8")


@pytest.mark.parametrize("key", gpu_keys())
def test_every_gpu_has_sources_and_derates(key: str) -> None:
    content = read_catalogue("gpus.yaml")
    sources = content["gpus"][key]["sources"]
    assert {"memory", "memory_bandwidth", "peak", "multiprocessors"} <= set(sources)
    assert set(sources.values()) <= {*content["references"], "unverified"}
    assert ("link" in sources) == (content["gpus"][key]["link"] is not None)
    reached = derate(find_gpu(key))
    assert 0 < reached.gemm <= 1
    assert 0 < reached.memory <= 1
    assert reached.floor_s > 0


def test_every_node_has_a_source_and_a_known_network() -> None:
    content = read_catalogue("clusters.yaml")
    for node in content["nodes"].values():
        assert node["source"] in {*content["references"], "unverified"}
        assert node["network"] in fabric_kinds()
        assert find_gpu(node["gpu"]).link.kind in fabric_kinds()


def test_an_unknown_kind_of_link() -> None:
    with pytest.raises(UnknownName, match="unknown kind of link 'infinband'; did you mean infiniband"):
        fabric("infinband")
