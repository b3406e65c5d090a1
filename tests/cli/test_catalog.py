"""`pipesim catalog` lists what is known by name and shows one entry with its sources."""

import json

import pytest

from pipesim.cli.app import main
from pipesim.costs.clusters.cluster_catalogue import cluster_names
from pipesim.costs.clusters.gpu import gpu_keys
from pipesim.costs.models.model_catalog import model_names

Capture = pytest.CaptureFixture[str]


def test_everything_is_listed(capsys: Capture) -> None:
    assert main(["catalog", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == ["gpus", "clusters", "models", "fabrics"]
    assert [row["key"] for row in listed["gpus"]] == list(gpu_keys())
    assert [row["key"] for row in listed["clusters"]] == list(cluster_names())
    assert [row["key"] for row in listed["models"]] == list(model_names())


def test_one_part_as_a_table(capsys: Capture) -> None:
    assert main(["catalog", "--only", "gpus"]) == 0
    out = capsys.readouterr().out
    assert "h100-sxm" in out
    assert "dgx-h100" not in out


@pytest.mark.parametrize(
    ("name", "kind", "key"),
    [
        ("H100-SXM5-80GB", "gpu", "h100-sxm"),
        ("dgx-a100", "cluster", "dgx-a100"),
        ("llama-3-70b", "model", "llama-3-70b"),
    ],
)
def test_one_entry(name: str, kind: str, key: str, capsys: Capture) -> None:
    assert main(["catalog", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["key"]) == (kind, key)
    assert found.get("source") or found["sources"]
    assert main(["catalog", name]) == 0
    assert key in capsys.readouterr().out


def test_an_unknown_name(capsys: Capture) -> None:
    assert main(["catalog", "dgx-h10"]) == 2
    expected = "unknown GPU, cluster or model 'dgx-h10'; did you mean dgx-h100 or dgx-h200 or dgx-a100?"
    assert capsys.readouterr().err == f"pipesim: error: {expected}\n"


def test_a_node_name_that_is_also_a_gpu_shows_both(capsys: Capture) -> None:
    assert main(["catalog", "l40s", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["cluster"]["gpus_per_node"]) == ("gpu", 8)
