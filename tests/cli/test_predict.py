"""`pipesim predict` and `pipesim estimate`."""

import json
from pathlib import Path

import pytest

from pipesim.cli.app import main

Capture = pytest.CaptureFixture[str]
ROW = {
    "id": "one",
    "layers": 8,
    "hidden": 1024,
    "heads": 16,
    "vocab": 32000,
    "seq": 1024,
    "gpu": "h100",
    "num_gpus": 8,
    "pp": 4,
    "global_batch": 32,
}


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_rows_become_predictions_line_by_line(tmp_path: Path, capsys: Capture) -> None:
    rows = write(tmp_path / "rows.jsonl", json.dumps(ROW), "", "{", json.dumps(ROW | {"id": "two", "pp": 3}))
    out = tmp_path / "out.jsonl"
    assert main(["predict", str(rows), "--out", str(out), "--workers", "1"]) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["id"] for one in found] == ["one", None, "two"]
    assert found[0]["step_time_s"] > 0
    assert "num_gpus=8 is not a multiple of tp·pp·cp=3" in found[2]["error"]
    assert "3 rows, 2 of them with an error" in capsys.readouterr().err


def test_without_out_predictions_go_to_standard_output(tmp_path: Path, capsys: Capture) -> None:
    assert main(["predict", str(write(tmp_path / "rows.jsonl", json.dumps(ROW)))]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "one"


BAD = {
    "no file": (["predict", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
    "no folder": (["predict", "{rows}", "--out", "/nowhere/out.jsonl"], "/nowhere"),
    "no workers": (["predict", "{rows}", "--workers", "0"], "workers"),
    "no model": (["estimate", "--cluster", "dgx-h100:1"], "no model; give one"),
    "no cluster": (["estimate", "--model", "llama-3-8b"], "--model without --cluster"),
    "overlap": (
        ["estimate", "--model", "llama-3-8b", "--cluster", "dgx-h100:1", "--overlap", "pipeline"],
        "--overlap pipeline: no such communication; none, or some of tensor,reduce,gather",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_status_2(kind: str, tmp_path: Path, capsys: Capture) -> None:
    args, message = BAD[kind]
    rows = write(tmp_path / "rows.jsonl", json.dumps(ROW))
    assert main([arg.format(rows=rows) for arg in args]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err


ESTIMATE = (
    "estimate", "1f1b", "--model", "llama-3-8b", "--cluster", "dgx-h100:1", "--tp", "2", "--pp", "2",
    "--global-batch", "16", "--zero", "1",
)  # fmt: skip


def test_estimate_breaks_a_step_down(capsys: Capture) -> None:
    assert main([*ESTIMATE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [stage["layers"] for stage in found["stages"]] == [16, 16]
    assert [(stage["embedding"], stage["head"]) for stage in found["stages"]] == [(1.0, 0.0), (0.0, 1.0)]
    layer = {part["name"]: part for part in found["layers"][0]["parts"]}
    stage = {part["name"]: part for part in found["stages"][0]["parts"]}
    assert stage["qkv"]["forward_s"] == pytest.approx(16 * layer["qkv"]["forward_s"])
    assert set(found["stages"][0]["bytes"]) == {
        "weights", "gradients", "optimizer", "activations_per_microbatch", "workspace",
    }  # fmt: skip
    work = [sum(p["forward_s"] + p["input_s"] + p["weight_s"] for p in one["parts"]) for one in found["stages"]]
    assert found["step"]["makespan_s"] > 8 / 2 * max(work)
    assert found["step"]["mfu"] > 0.2


def test_estimate_as_tables(capsys: Capture) -> None:
    assert main([*ESTIMATE]) == 0
    out = capsys.readouterr().out
    for text in ("one layer, one microbatch", "stage 1: 16 layers with head", "mlp_up", "MFU", "usual settings of"):
        assert text in out


def test_overlap_can_be_switched(capsys: Capture) -> None:
    times = {}
    for overlap in ("none", "reduce,gather", "tensor,reduce,gather"):
        assert main([*ESTIMATE, "--framework", "nemo", "--overlap", overlap, "--json"]) == 0
        times[overlap] = json.loads(capsys.readouterr().out)["step"]["step_time_s"]
    assert times["none"] > times["reduce,gather"] > times["tensor,reduce,gather"]
