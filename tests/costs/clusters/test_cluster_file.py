"""A user's cluster file, and what it says when a field is wrong."""

from pathlib import Path

import pytest

from pipesim.costs.clusters.cluster_catalogue import BadCluster, load_cluster
from pipesim.costs.times.compute import gemm_seconds

GOOD = """\
name: two-kinds
nodes:
  - {node: dgx-h100, count: 4}
  - {gpu: my-gpu, gpus: 8, count: 2, network: ethernet, nics: 1, nic_gbit_per_s: 100}
levels:
  - {name: rack, nodes: 2}
  - {name: spine, kind: ethernet, gbit_per_s_per_node: 100, latency_us: 20}
gpus:
  my-gpu: {like: ada, memory_gib: 24, memory_gb_per_s: 1000, peak_tflops: {fp32: 80, bf16: 165}, pcie_gb_per_s: 32}
"""


def test_a_file_of_two_kinds_of_node(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(GOOD)
    cluster = load_cluster(path)
    assert (cluster.name, cluster.devices, [gpu.name for gpu in cluster.gpus]) == (
        "two-kinds",
        48,
        ["H100-SXM5-80GB", "my-gpu"],
    )
    assert [level.name for level in cluster.levels] == ["rack", "spine"]
    assert cluster.route(0, 40).level == "spine"
    mine, theirs = (gemm_seconds(cluster.gpu_of(device), 4096, 4096, 4096) for device in (40, 0))
    assert 3 < mine / theirs < 10


def test_toml_means_the_same(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[[nodes]]\nnode = "dgx-a100"\ncount = 2\nnic_gbit_per_s = 100\n')
    cluster = load_cluster(path)
    assert (cluster.name, cluster.devices, cluster.nodes[0].network_bytes_per_s) == ("cluster", 16, 100e9)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count: 4", "count: 0", "nodes[0].count: input should be greater than or equal to 1, not '0'"),
        (
            "gpus: 8,",
            "gpus: x,",
            "nodes[1].gpus: input should be a valid integer, unable to parse string as an integer, not 'x'",
        ),
        (
            "dgx-h100",
            "dgx-h1000",
            "nodes[0].node: unknown node 'dgx-h1000'; did you mean dgx-h100 or dgx-h200 or dgx-a100?",
        ),
        (
            "like: ada",
            "like: adda",
            "gpus.my-gpu.like: input should be 'ampere', 'hopper', 'blackwell' or 'ada', not 'adda'",
        ),
        ("bf16: 165", "bf17: 165", "gpus.my-gpu.peak_tflops: takes fp32, tf32, fp16, bf16, fp8, fp4, not bf17"),
        (
            "ethernet, nics",
            "ethernat, nics",
            "nodes[1].network: unknown kind of link 'ethernat'; did you mean ethernet?",
        ),
        ("nics: 1", "nicks: 1", "nodes[1].nicks: is not a field here"),
        (" nics: 1,", "", "nodes[1].nics: is missing (or name a node of the catalogue, node: dgx-h100)"),
        ("kind: ethernet", "kind: wlan", "levels[1].kind: unknown kind of link 'wlan'; did you mean wan?"),
        ("latency_us: 20", "latency_us: .inf", "levels[1].latency_us: input should be a finite number, not 'inf'"),
        ("nodes:\n", "nods:\n", "nodes: is missing"),
        ("spine,", "spine, nodes: 4,", "the last level spine holds 4 of 6 nodes; leave out its 'nodes' to hold all"),
        ("rack, nodes: 2", "rack, nodes: 4", None),  # groups of four and what is left
        (
            "rack, nodes: 2}",
            "rack, nodes: 2}\n  - {name: row, nodes: 3}",
            "level row: 3 nodes are not whole groups of 2",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    if message is None:
        assert load_cluster(path).devices == 48
        return
    with pytest.raises(BadCluster) as caught:
        load_cluster(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value) or "two-kinds" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "must be a mapping with 'nodes', not list"),
        ("{{{", "is not YAML"),
        ("nodes: [{node: dgx-h100}]\n" + "# long\n" * 200_000, "is larger than 1048576 bytes"),
        ("[" * 20_000, "is not YAML"),
        ("\x00", "is not YAML"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(BadCluster) as caught:
        load_cluster(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadCluster, match=r"nothing.toml: cannot be read: No such file or directory"):
        load_cluster(tmp_path / "nothing.toml")
