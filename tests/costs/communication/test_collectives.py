"""Times of collectives and messages against measured tables, and what must hold of any of them."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.communication.collectives import OPERATIONS, collective, collective_seconds, group_of
from pipesim.costs.communication.nccl import choices
from pipesim.costs.communication.p2p import p2p_seconds

DATA = Path(__file__).parents[2] / "data" / "collectives" / "measured.jsonl"
TABLES: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
MIB = 2**20

MISSED = {
    # 20 racks of NVL72: five times the latency of our tree of switches
    ("gb200-nvl72:20", 1440): 0.65,
    # The same machine in Azure with NCCL 2.18: small messages take twice as long
    ("dgx-a100:1", 8): 0.25,
    # One AWS node, timed from Python: small messages take 1.5 times as long
    ("aws-p6-b200:1", 8): 0.20,
}
"""Tables that we miss by more than 15 %, and by how much at most."""


def _error(table: dict[str, Any]) -> float:
    cluster = load_cluster(table["cluster"])
    errors = []
    for size, seconds in zip(table["bytes"], table["seconds"], strict=True):
        if seconds == 0:
            continue
        if table["operation"] == "send_recv":
            ours = p2p_seconds(cluster, 0, table["target"], size)
        else:
            ours = collective_seconds(cluster, table["operation"], size, range(table["ranks"]))
        errors.append(abs(ours / seconds - 1))
    return median(errors)


def _name(table: dict[str, Any]) -> str:
    return f"{table['cluster']} {table['operation']} {table['ranks']} {table['nccl'] or table['about'][:20]}"


BUSY = [table for table in TABLES if "in normal use" in table["about"]]


@pytest.mark.parametrize("table", [table for table in TABLES if table not in BUSY], ids=_name)
def test_median_error_of_a_measured_table(table: dict[str, Any]) -> None:
    allowed = MISSED.get((table["cluster"], table["ranks"]), 0.15)
    if table["nccl"] is not None:
        allowed = 0.06  # the packed tables themselves, and other versions of NCCL on the same machine
    assert _error(table) <= allowed


def test_a_busy_cluster_on_the_whole() -> None:
    """Medians over a shared cluster's life: wide bands, one size; two parameters cannot follow each of them."""
    assert median(_error(table) for table in BUSY if table["ranks"] > 8) <= 0.30


@given(
    st.sampled_from(OPERATIONS),
    st.sampled_from(["dgx-h100:4", "dgx-a100:4", "dgx-b200:4", "aws-p4de:4", "l40s:4", "mi300x:4"]),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.integers(min_value=0, max_value=33),
)
def test_twice_the_bytes_never_take_less(operation: Any, name: str, ranks: int, power: int) -> None:
    cluster = load_cluster(name)
    less, more = (collective_seconds(cluster, operation, 2.0 ** (power + i), range(ranks)) for i in (0, 1))
    assert 0 <= less <= more * 1.10  # tables have their own noise


def test_alone_or_nothing_to_send_takes_no_time() -> None:
    cluster = load_cluster("dgx-h100:1")
    assert collective_seconds(cluster, "all_reduce", MIB, [3]) == 0
    assert collective_seconds(cluster, "all_reduce", 0, range(8)) == 0
    assert p2p_seconds(cluster, 2, 2, MIB) == 0


def test_where_the_members_sit_decides() -> None:
    cluster = load_cluster("dgx-h100:8")
    inside, across, all_of_them = (
        collective_seconds(cluster, "all_reduce", 256 * MIB, members)
        for members in (range(8), range(0, 64, 8), range(64))
    )
    assert inside < all_of_them < across  # one GPU a node has an eighth of its node's network
    assert across == pytest.approx(2 * 7 / 8 * 256 * MIB / 45e9, rel=0.1)


def test_a_narrow_level_slows_the_groups_that_cross_it() -> None:
    cluster = load_cluster("dgx-h100-ethernet-racks:8")
    in_rack = collective_seconds(cluster, "all_reduce", 64 * MIB, range(32))
    across = collective_seconds(cluster, "all_reduce", 64 * MIB, range(64))
    assert across > 10 * in_rack


@pytest.mark.parametrize(
    ("size", "algorithm", "protocol"),
    [(1024, "ring", "LL"), (MIB // 2, "ring", "LL"), (8 * MIB, "nvls", "Simple"), (512 * MIB, "nvls", "Simple")],
)
def test_the_algorithm_that_nccl_picks_on_one_hopper_node(size: int, algorithm: str, protocol: str) -> None:
    """Ring/LL up to 1 MiB, NVLS from 2 MiB on 8 H200 (ml-engineering, network/README.md)."""
    found = collective(load_cluster("dgx-h200:1"), "all_reduce", size, range(8))
    assert (found.algorithm, found.protocol) == (algorithm, protocol)


def test_in_switch_reduction_needs_five_gpus() -> None:
    cluster = load_cluster("dgx-h100:1")
    names = [{c.algorithm for c in choices("all_reduce", MIB, group_of(cluster, range(n)))} for n in (4, 5)]
    assert names == [{"ring", "tree"}, {"ring", "tree", "nvls"}]


def test_a_message_takes_what_was_measured() -> None:
    cluster = load_cluster("dgx-h100:2")
    assert p2p_seconds(cluster, 0, 1, 16 * MIB) == pytest.approx(53.5e-6)
    assert p2p_seconds(cluster, 0, 8, 16 * MIB) == pytest.approx(478e-6)
    half_as_wide = load_cluster("dgx-a100:2")  # 25 GB/s: the same shape, scaled
    assert p2p_seconds(half_as_wide, 0, 8, 64 * MIB) == pytest.approx(2 * 1871e-6, rel=0.02)
