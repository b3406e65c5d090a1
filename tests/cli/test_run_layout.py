"""`pipesim run --layout` and `pipesim generate`: what they write, and one line for what cannot work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipesim.cli.app import main


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("pipesim: error: ")
    assert error.count("\n") == 1
    return error


TRAIN = ("run", "1f1b", "--model", "tiny-llama", "--microbatches", "2", "--layout")


@pytest.mark.slow
def test_training_is_reported_with_its_communication(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, metrics = tmp_path / "text.txt", tmp_path / "metrics.jsonl"
    text.write_text("the wheel turns and the water runs. " * 40)
    chart = tmp_path / "chart.html"
    words = [*TRAIN, "pp=2,tp=2", "--sequence-parallel", "--data", str(text), "--steps", "3", "--seq", "16"]
    assert main([*words, "--metrics", str(metrics), "--chart", str(chart), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["loss"] for line in lines] == found["losses"]
    assert found["losses"][-1] < found["losses"][0]
    assert {row["dimension"] for row in found["communication"]} == {"tensor", "pipeline", "job"}
    for row in found["communication"]:
        assert (row["count"], row["bytes"]) == (row["simulated_count"], row["simulated_bytes"]), row
    assert found["simulated"]["step_time_s"] > 0
    assert "<html" in chart.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pp=2,pt=2",), "'pt=2'; degrees of pp, tp, dp, cp, ep as in pp=2,tp=2,dp=2"),
        (("tp=8",), "4 attention heads of tiny-llama cannot be split over 8 ranks; tp that work: 1, 2, 4"),
        (("pp=9",), "8 layers cannot fill pp=9"),
        (("pp=2,cp=2",), "cp=2 can only be simulated"),
        (("pp=2", "--ranks", "4"), "--ranks 4, but --layout pp=2"),
        (("pp=2", "--split", "3,6"), "add up to 9, but tiny-llama has 8 layers"),
        (("pp=2", "--data", "/no/such.txt"), "cannot read /no/such.txt"),
        (("pp=2", "--seq", "2000"), "2000 positions, but model tiny-llama has 1024"),
        (("pp=2", "--runtime", "torch"), "--runtime torch with --layout"),
        (("pp=2", "--lr-shape", "wavy"), "there are constant, linear, cosine"),
        (("pp=2", "--recompute", "some"), "recompute='some' is not known"),
        (("pp=2", "--dtype", "int8"), "'int8' is not one of"),
    ],
)
def test_layouts_that_cannot_be_trained(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(capsys, *TRAIN, *words)


def test_a_vocabulary_that_tp_does_not_divide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "llama", "hidden_size": 12, "intermediate_size": 12, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 6, "vocab_size": 256}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    words = ("run", "1f1b", "--model", str(path), "--microbatches", "2", "--layout", "tp=3")
    assert "vocabulary 256 of" in fails(capsys, *words)


def test_what_needs_a_layout(capsys: pytest.CaptureFixture[str]) -> None:
    message = fails(capsys, "run", "1f1b", "-p", "2", "-m", "2", "--model", "tiny-llama", "--zero", "1")
    assert "--zero without --layout; give one, such as --layout pp=2,tp=2,dp=2" in message


@pytest.mark.slow
def test_text_is_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("The wheel\nWater\n")
    words = ["generate", "--model", "tiny-llama", "--layout", "pp=2", "--max-new-tokens", "3", "--json"]
    assert main([*words, "--prompts", str(prompts), "--prompt-tokens", "1,2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(one["tokens"]) for one in found["continuations"]] == [3, 3, 3]
    assert found["tokens_per_s"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to continue"),
        (("--prompt-tokens", "1,x"), "not token numbers"),
        (("--prompt", "x" * 1020), "1020 tokens and 32 new ones exceed the context of 1024 of tiny-llama"),
        (("--prompt", "x", "--layout", "tp=3"), "4 attention heads of tiny-llama cannot be split over 3 ranks"),
        (("--prompt", "x", "--top-p", "2"), "top_p=2.0"),
    ],
)
def test_what_cannot_be_generated(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in fails(capsys, "generate", "--model", "tiny-llama", *words)
