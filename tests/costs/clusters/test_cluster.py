"""Where devices sit, which way their messages go, and how a cluster is named."""

import pytest

from pipesim.costs.catalog_files import UnknownName, read_catalogue
from pipesim.costs.clusters.cluster import Cluster, MixedGpus, Node, NoSuchDevice
from pipesim.costs.clusters.cluster_catalogue import cluster_names, load_cluster, plain_cluster, preset
from pipesim.costs.clusters.cluster_parts import BadCluster, cluster_of, node_of
from pipesim.costs.network import Link


def test_the_count_is_of_nodes() -> None:
    cluster = load_cluster("dgx-h100:8")
    assert (cluster.devices, len(cluster.nodes), cluster.gpu.name) == (64, 8, "H100-SXM5-80GB")
    assert load_cluster("gb200-nvl72:2").devices == 144
    assert load_cluster("dgx-h100").devices == 8


def test_some_of_each_nodes_gpus() -> None:
    cluster = load_cluster("dgx-h100:3x4")
    assert (cluster.devices, cluster.nodes[0].gpus, cluster.nodes[0].ports) == (12, 4, 4)
    assert cluster.nodes[0].network_bytes_per_s == 200e9  # the other four keep their ports


@pytest.mark.parametrize("name", cluster_names())
def test_every_preset_builds(name: str) -> None:
    cluster = preset(name, nodes=32)
    last = cluster.devices - 1
    route = cluster.route(0, last)
    assert 0 < route.latency_s < 1
    assert 0 < route.bytes_per_s <= min(link.bytes_per_s for link in route.links)
    assert cluster.levels[-1].nodes == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dgx-h10:8", "unknown cluster 'dgx-h10'; did you mean dgx-h100 or dgx-h200 or dgx-a100?"),
        (
            "dgx-h100:eight",
            "cluster 'dgx-h100:eight': the count after ':' is of nodes, "
            "e.g. dgx-h100:8, or dgx-h100:8x4 for 4 GPUs of each",
        ),
        (
            "dgx-h100:",
            "cluster 'dgx-h100:': the count after ':' is of nodes, e.g. dgx-h100:8, or dgx-h100:8x4 for 4 GPUs of each",
        ),
        ("dgx-h100:0", "cluster 'dgx-h100:0': needs at least 1 node, e.g. dgx-h100:1"),
        ("dgx-h100:2x9", "cluster 'dgx-h100': a node has 8 GPUs, so 1 to 8 of them can be used, not 9"),
        ("dgx-h100:1000000", "cluster 'dgx-h100:1000000': more than 1048576 GPUs"),
    ],
)
def test_a_bad_name_says_what_works(text: str, message: str) -> None:
    with pytest.raises((BadCluster, UnknownName)) as caught:
        load_cluster(text)
    assert str(caught.value) == message


def test_inside_a_node_messages_share_the_gpus_own_links() -> None:
    route = load_cluster("dgx-h100:2").route(1, 3)
    assert (route.level, route.kind, route.latency_s) == ("node", "nvlink4", pytest.approx(7.6e-6))
    assert route.links == (Link("gpu1/out", 360e9), Link("gpu3/in", 360e9))


def test_between_nodes_they_share_ports() -> None:
    cluster = load_cluster("dgx-h100:2")
    route = cluster.route(0, 9)
    assert (route.level, route.kind, route.bytes_per_s) == ("network", "infiniband", 36e9)
    assert [link.name for link in route.links] == ["node0/port0/out", "node1/port1/in"]
    assert cluster.route(0, 8).links[0] == route.links[0]  # device 0 sends both through its one port


def test_gpus_that_share_a_network_port() -> None:
    cluster = load_cluster("aws-p4de:2")  # 4 NICs for 8 GPUs
    first, second, third = (cluster.route(device, 8).links[0].name for device in (0, 1, 2))
    assert (first, second, third) == ("node0/port0/out", "node0/port0/out", "node0/port1/out")


def test_levels_above_the_node_are_crossed_only_where_needed() -> None:
    cluster = load_cluster("dgx-h100-ethernet-racks:8")
    assert cluster.route(0, 31).level == "rack"
    far = cluster.route(0, 32)
    assert (far.level, far.kind) == ("spine", "ethernet")
    assert [link.name for link in far.links[2:]] == ["rack0/uplink/out", "rack1/uplink/in"]
    assert far.bytes_per_s == pytest.approx(12.5e9 * 0.62)  # 100 Gb/s of one node
    assert far.links[2].bytes_per_s == pytest.approx(4 * 12.5e9 * 0.62)  # of the rack's four


def test_span_of_a_group() -> None:
    cluster = load_cluster("dgx-h100:4")
    inside = cluster.span(range(8))
    assert (inside.ranks, inside.nodes, inside.per_node, inside.level) == (8, 1, 8, -1)
    across = cluster.span(range(0, 32, 8))
    assert (across.ranks, across.nodes, across.per_node, across.level) == (4, 4, 1, 0)
    assert across.bytes_per_s == 50e9  # one GPU's part of its node's network
    assert cluster.span(range(32)).bytes_per_s == 400e9


def test_nodes_may_differ() -> None:
    content = read_catalogue("clusters.yaml")["nodes"]
    nodes: list[Node] = [node_of(name, content[name]) for name in ("dgx-h100", "dgx-a100")]
    cluster: Cluster = cluster_of("mixed", nodes)
    assert [cluster.gpu_of(device).architecture for device in (7, 8)] == ["hopper", "ampere"]
    assert cluster.route(0, 8).bytes_per_s == pytest.approx(25e9 * 0.72)  # the slower port
    assert cluster.span([0, 8]).node.gpu.architecture == "ampere"
    with pytest.raises(MixedGpus, match="mixes H100-SXM5-80GB, A100-SXM4-80GB"):
        _ = cluster.gpu


def test_no_such_device() -> None:
    with pytest.raises(NoSuchDevice, match="cluster dgx-h100:2 has devices 0 to 15, not 16"):
        load_cluster("dgx-h100:2").route(0, 16)


def test_a_few_numbers_are_enough() -> None:
    cluster = plain_cluster(
        "A100-SXM4-80GB", nodes=4, gpus_per_node=8, network="omni-path", node_gbit_per_s=400, ports=4
    )
    assert (cluster.devices, cluster.nodes[0].ports, cluster.nodes[0].network_bytes_per_s) == (32, 4, 50e9)
    assert cluster.route(0, 8).kind == "omni-path"
