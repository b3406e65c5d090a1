"""The serving command, plan --serving, and inference rows in predict."""

import json
from pathlib import Path

import pytest

from pipesim.cli import main

MODEL = ("--model", "llama-3-8b", "--cluster", "dgx-a100:1x2")
BATCH = ("serving", *MODEL, "--tp", "2", "--batch", "8", "--input", "128", "--output", "16")


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = main(args)
    found = capsys.readouterr()
    return status, found.out, found.err


def test_a_batch_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *BATCH, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["requests"] == 8
    assert found["output_tokens_per_s"] > 0
    assert found["ttft_s"]["p50"] < found["latency_s"]["p50"]
    assert found["memory"]["largest_batch"] > 100


def test_without_graphs_every_kernel_is_launched_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    captured, launched = (
        json.loads(run(capsys, *BATCH, option, "--json")[1])["tpot_s"]["mean"] for option in ("--graphs", "--no-graphs")
    )
    assert launched > captured + 32 * 9 * 7e-6


def test_a_batch_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *BATCH)
    assert status == 0
    for words in ("time to first token", "time per output token", "bubble", "largest batch that fits"):
        assert words in out


def test_a_stream_with_a_chart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart = tmp_path / "chart.html"
    status, out, _ = run(
        capsys, "serving", *MODEL, "--pp", "2", "--rate", "120/min", "--duration", "10s", "--out", str(chart), "--json"
    )
    assert status == 0
    assert json.loads(out)["overloaded"] is False
    assert "A window of the run" in chart.read_text("utf-8")


def test_a_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,100,5\n0.5,200,3\n")
    status, out, _ = run(capsys, "serving", *MODEL, "--requests", str(file), "--json")
    assert status == 0
    assert json.loads(out)["requests"] == 2


def test_a_load_curve_says_where_the_system_is_overloaded(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("serving", *MODEL, "--rates", "1,400", "--duration", "5s")
    status, out, _ = run(capsys, *args, "--json")
    assert status == 0
    assert [point["overloaded"] for point in json.loads(out)] == [False, True]
    assert "overloaded" in run(capsys, *args)[1]


def test_pools(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "serving", *MODEL, "--prefill", "1x1x1", "--rate", "2/s", "--duration", "5s", "--json")
    assert status == 0
    assert json.loads(out)["gpus"] == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--batch", "4", "--model", "llama-3-70b"), "does not fit"),
        (("--batch", "4", "--input", "100000"), "the context of llama-3-8b holds 8192"),
        ((), "no workload given; give one of --batch"),
        (("--batch", "999999999999"), "999999999999 requests: not a number that can be simulated"),  # MemoryError
        (("--rate", "1/s", "--duration", "1s", "--seed", "-1"), "--seed"),  # a traceback of numpy
        (("--batch", "2", "--rate", "1/s"), "--batch and --rate are several workloads"),
        (("--rate", "fast"), "--rate fast: not a rate above 0"),
        (("--batch", "2", "--input", "many"), "--input many: not a number of tokens"),
        (("--batch", "2", "--engine", "vlm"), "did you mean vllm?"),
        (("--batch", "2", "--weights", "ternary"), "unknown weight format"),
        (("--batch", "2", "--prefill", "2"), "--prefill 2: not TPxPPxREPLICAS"),
        (("--requests", "none.csv"), "cannot read none.csv"),
    ],
)
def test_what_cannot_work_is_one_line(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str) -> None:
    status, _, error = run(capsys, "serving", *MODEL, *args)
    assert status == 2
    assert message in error
    assert error.count("\n") == 1


def test_plan_serving(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "plan", "--serving", *MODEL, "--slo", "tpot=30ms", "--output", "16", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["ranking"][0]["goodput_requests_per_s"] > 0
    assert found["command"].startswith("pipesim serving --model llama-3-8b")


def test_predict_takes_rows_of_inference(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data/serving/inference.jsonl"
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(data.read_text().splitlines()[:2]) + "\n")
    status, out, _ = run(capsys, "predict", str(file))
    assert status == 0
    assert [json.loads(line)["latency_s"] > 0 for line in out.splitlines()] == [True, True]
