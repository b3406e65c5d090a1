"""`pipesim simulate` and `compare` as a user runs them: figures, files, and every way to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipesim.cli import main

MODEL = ["--model", "llama-3-8b", "--cluster", "dgx-h100:1", "--tp", "2", "-p", "4", "--global-batch", "32"]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = main(args)
    out, err = capsys.readouterr()
    return status, out, err


def figures(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    status, out, err = run(capsys, *args, "--json")
    assert status == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_plain_costs(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, "simulate", "1f1b", "-p", "8", "-m", "24", "--costs",
                    "F=18.522ms,I=18.086ms,W=9.337ms,C=0.601ms")  # fmt: skip
    assert round(found["span_bubble_rate"], 4) == 0.2431
    assert found["peak_activations"] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert set(found) >= {"makespan_s", "step_time_s", "bubble_fraction", "bubble_ratio", "idle_s"}
    assert "mfu" not in found


def test_asynchronous_schedules_report_versions_and_staleness(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, "simulate", "pipedream", "-p", "4", "-m", "8", "--costs", "F=1,B=2")
    assert found["weight_versions"] == [4, 3, 2, 1]
    assert found["staleness"] == [3, 2, 1, 0]


def test_a_model_on_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, "simulate", "1f1b", *MODEL)
    assert found["fits"] is True
    assert 0.2 < found["mfu"] < 0.7
    assert found["tokens_per_s_per_gpu"] == pytest.approx(32 * 4096 / found["step_time_s"] / 8)
    assert len(found["peak_memory_bytes"]) == 4
    assert sum(found["layers_per_stage"]) == 32


def test_a_config_file_and_its_folder_give_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False, "hidden_act": "silu",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_name = figures(capsys, "simulate", "1f1b", *MODEL)["step_time_s"]
    for path in (tmp_path, tmp_path / "config.json"):
        args = [str(path) if word == "llama-3-8b" else word for word in MODEL]
        assert figures(capsys, "simulate", "1f1b", *args)["step_time_s"] == by_name


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, trace, timeline = (tmp_path / name for name in ("a.html", "a.json", "a.npz"))
    status, text, err = run(capsys, "simulate", "interleaved", *MODEL, "-v", "2", "--out", str(out), "--trace",
                            str(trace), "--timeline", str(timeline))  # fmt: skip
    assert status == 0, err
    assert "bubble_fraction" in text
    assert "mlp_up" in text  # the breakdown
    assert out.read_text().lstrip().lower().startswith("<!doctype html>")
    assert json.loads(trace.read_text())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "a.npz"]


def test_compare(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = ["compare", "gpipe", "1f1b", "interleaved", "-p", "4", "-m", "8", "-v", "2", "--costs", "F=1,I=1,W=1"]
    status, out, err = run(capsys, *args, "--json", "--out", str(tmp_path / "c.html"))
    assert status == 0, err
    assert [(one["name"], one["makespan_s"]) for one in json.loads(out)] == [
        ("gpipe", 33.0), ("1f1b", 33.0), ("interleaved", 28.5),
    ]  # fmt: skip
    assert (tmp_path / "c.html").stat().st_size > 100_000


def test_a_layout_that_does_not_fit_is_simulated_and_flagged(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "simulate", "gpipe", "--model", "llama-3-70b", "--cluster", "dgx-h100:1", "-p", "8",
                           "--global-batch", "8", "--json")  # fmt: skip
    assert status == 0
    assert json.loads(out)["fits"] is False
    assert "DOES NOT FIT: rank" in err


PLAIN = ["-p", "4", "-m", "8", "--costs", "F=1,B=2"]
WRONG = [
    (["simulate", "1f1b", "-p", "2", "-m", "2", "--costs", "F=1,B=2", "--tp", "8"], "--tp with --costs"),
    (["simulate", "1f1b", "-p", "2", "-m", "2", "--costs", "F=1,B=2", "--out", "a", "--trace", "a"], "are one file"),
    (["simulate", "1f1b", "-p", "2", "-m", "2", "--costs", "F=1,B=2", "--timeline", "a.txt"], ".npz or .jsonl works"),
    (["simulate", "1f1b", "-p", "2", "-m", "2", "--costs", "F=1,B=2", "--memory-limit", "3GB"], "4mb or 4"),
    (["simulate", "1f1bb", *PLAIN], "1f1b"),
    (["simulate", "1f1b", "-p", "4", "-m", "8"], "no times given; give --costs F=1,I=1,W=1, or --model and --cluster"),
    (["simulate", "zb-h1", *PLAIN], "give I and W"),
    (
        ["simulate", "interleaved", "-p", "4", "-m", "9", "--costs", "F=1,B=2"],
        "or 8 or 12 microbatches",
    ),
    (["simulate", "1f1b", *PLAIN[:4], "--costs", "F=-1,B=2"], "F='-1': must not be negative"),
    (["simulate", "1f1b", *PLAIN[:4], "--costs", "F=inf,B=2"], "F='inf'"),
    (["simulate", "1f1b", *PLAIN[:4], "--costs", "F=1,B=2,Q=3"], "'Q=3' is not one of F, B, I, W, C"),
    (["simulate", "1f1b", *PLAIN[:4], "--costs", "F=1:2:3,B=2"], "F has 3 values for 4 stages"),
    (["simulate", "1f1b", *PLAIN, "--comm", "smoke"], "there are edge, pair, rank, blocking"),
    (["simulate", "1f1b", *PLAIN, "--engine", "warp"], "there are auto, event, fast"),
    (["simulate", "1f1b", *PLAIN, "--model", "llama-3-8b"], "two sources of times"),
    (["simulate", "1f1b", "-p", "4", "--model", "llama-3-8b"], "--model without --cluster"),
    (["simulate", "1f1b", "-p", "4", "--model", "lama-3-8b", "--cluster", "dgx-h100:1"], "llama-3-8b"),
    (["simulate", "1f1b", "-p", "4", "--model", "llama-3-8b", "--cluster", "dgx-h10:1"], "dgx-h100"),
    (["simulate", "1f1b", *MODEL, "--dp", "2"], "dp=1 works"),
    (["simulate", "1f1b", *MODEL[:4], "-p", "64", "--tp", "2"], "GPUs"),
    (["simulate", "1f1b", *MODEL, "--split", "1,2,3,4"], "add up to 10"),
    (["simulate", "1f1b", *PLAIN, "--out", "/nowhere/at/all.html"], "the folder /nowhere/at does not exist"),
    (["simulate", "1f1b", "-p", "0", "-m", "8", "--costs", "F=1,B=2"], "ranks"),
    (["simulate", "1f1b", *PLAIN[:4], "--costs", "F=1e308,B=2"], "F=1e+308: must be at most 1e+12 s"),  # sums were inf
    (["estimate", *MODEL[:4], "--pp", "0"], "pp=0 must be a whole number"),  # was taken as 1
    # Each of these was a traceback.
    (["simulate", "1f1b", *PLAIN, "--option", "ranks=3"], "give it as --ranks, e.g. --ranks 4"),
    (["simulate", "1f1b", *PLAIN, "--option", "name=x"], "give it as the argument, e.g. 1f1b"),
    (["simulate", "1f1b", *MODEL, "--split", "²"], "split='²' is not known"),
    (["simulate", "1f1b", *MODEL[:3], "dgx-h100:999999999999", "-p", "4"], "may have at most 1000000 nodes"),
    (["simulate", "1f1b", *MODEL[:3], f"dgx-h100:{'9' * 5000}", "-p", "4"], "the count after ':' is of nodes"),
]


@pytest.mark.parametrize(("args", "says"), WRONG, ids=[" ".join(args)[:60] for args, _ in WRONG])
def test_bad_input_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str], args: list[str], says: str) -> None:
    status, out, err = run(capsys, *args)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1, err
    assert says in err


@pytest.mark.parametrize("content", ["", "{", '{"model_type": "llama"', "[]", '{"model_type": "mamba"}', '{"a": 1}'])
def test_a_bad_config_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    status, _, err = run(capsys, "simulate", "1f1b", "-p", "4", "--model", str(path), "--cluster", "dgx-h100:1")
    assert status == 2
    assert err.count("\n") == 1, err
    assert "config.json" in err


def test_uneven_layers_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--model", "llama-3-8b", "--cluster", "dgx-h100:1", "-p", "5", "--dp", "1"]
    status, _, err = run(capsys, "simulate", "1f1b", *args)
    assert status == 2
    assert "GPUs" in err
    found = figures(capsys, "simulate", "1f1b", *MODEL, "--split", "7,8,9,8")
    assert any("layers per stage differ: [7, 8, 9, 8]" in note for note in found["notes"])


def test_a_stage_without_layers_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The shares of its parts, zero of zero seconds, were a traceback."""
    status, out, err = run(capsys, "simulate", "1f1b", *MODEL, "--split", "16,16,0,0")
    assert status == 0, err
    assert "stage 2 (0 layers)" in out
