"""The cluster of a row: nodes, network and what the row did not say."""

import pytest

from pipesim.costs.catalog_files import UnknownName
from pipesim.costs.clusters.cluster_catalogue import BadCluster
from pipesim.costs.clusters.row_cluster import cluster_of_row
from pipesim.costs.rows import BadRow

H100 = {
    "gpu": "H100-SXM5-80GB",
    "num_gpus": 32,
    "gpus_per_node": 8,
    "fabric": "infiniband",
    "node_network_gbit_s": 1600,
}


def test_what_a_row_says_is_what_it_gets() -> None:
    cluster, assumed = cluster_of_row(H100)
    assert (len(cluster.nodes), cluster.nodes[0].gpus, cluster.nodes[0].port.kind) == (4, 8, "infiniband")
    assert cluster.nodes[0].network_bytes_per_s == pytest.approx(200e9)
    assert assumed == {}
    assert cluster_of_row(dict(H100))[0] is cluster  # equal rows share what is cached by cluster


def test_what_it_does_not_say_is_the_vendors_own_node() -> None:
    cluster, assumed = cluster_of_row({"gpu": "A100-SXM4-80GB", "tp": 8, "pp": 2, "dp": 2})
    assert (len(cluster.nodes), cluster.nodes[0].network_bytes_per_s) == (4, pytest.approx(200e9))
    assert assumed == {"gpus_per_node": 8, "fabric": "infiniband", "node_network_gbit_s": 1600.0}


def test_inside_one_node_no_network_is_assumed() -> None:
    assert cluster_of_row({"gpu": "h100", "num_gpus": 4, "gpus_per_node": 8})[1] == {}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RoCE RDMA", "roce"),
        ("EFA", "efa-busy"),
        ("Omni-Path", "omni-path"),
        ("HDR IB", "infiniband"),
        ("TCP", "ethernet"),
    ],
)
def test_fabrics_are_matched_leniently(text: str, kind: str) -> None:
    assert cluster_of_row({**H100, "fabric": text})[0].nodes[0].port.kind == kind


def test_a_domain_of_72_is_one_node_with_the_network_of_all_its_trays() -> None:
    row = {
        "gpu": "GB200",
        "num_gpus": 144,
        "gpus_per_node": 4,
        "fabric": "nvlink-domain-72",
        "node_network_gbit_s": 1600,
    }
    cluster, _ = cluster_of_row(row)
    assert [node.gpus for node in cluster.nodes] == [72, 72]
    assert cluster.nodes[0].network_bytes_per_s == pytest.approx(18 * 200e9)


def test_nodes_that_are_not_full_are_equal() -> None:
    cluster, _ = cluster_of_row({**H100, "num_gpus": 12})
    assert [node.gpus for node in cluster.nodes] == [6, 6]


def test_bad_numbers_and_names_are_named() -> None:
    with pytest.raises(UnknownName, match="unknown GPU 'H1000'"):
        cluster_of_row({"gpu": "H1000"})
    with pytest.raises(BadRow, match="num_gpus='many' must be a whole number"):
        cluster_of_row({"gpu": "h100", "num_gpus": "many"})


def test_a_row_of_more_gpus_than_there_are_is_refused() -> None:
    """A list of 10¹⁵ / 8 nodes was a MemoryError without a word."""
    with pytest.raises(BadRow, match="num_gpus=1000000000000000 must be a whole number; 1 to 1,000,000,000 work"):
        cluster_of_row({**H100, "num_gpus": 10**15})
    with pytest.raises(BadCluster, match="num_gpus=1000000000 must be at most 8000000"):
        cluster_of_row({**H100, "num_gpus": 10**9})
    with pytest.raises(BadCluster, match="at most 1000000 nodes"):
        cluster_of_row({**H100, "num_gpus": 8 * 10**6, "gpus_per_node": 1})
