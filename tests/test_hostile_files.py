"""Every file reader takes a file or refuses it in one sentence, and what it takes can be used.

The thousands of changed files that were tried once ended in tracebacks, arrays of terabytes and a clock that stood
still; each of those has a test of its own beside the reader. A few more are tried here.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pipesim
from pipesim.costs.costs_file import read_costs_file
from pipesim.costs.lengths import read_lengths
from pipesim.costs.plain import parse_costs
from pipesim.errors import PipesimError
from pipesim.ir.check import check
from pipesim.ir.formats import read_schedule, write_schedule
from pipesim.plan.batch import predict_line
from pipesim.serving.requests import read_requests
from pipesim.timeline_file import load_timeline, save_timeline
from pipesim.viz.chart import chart
from pipesim.viz.kineto import read_profiler_traces
from pipesim.viz.trace import write_trace
from tests.hostile import changed_json, changed_line, changed_text

Change = Callable[[str, random.Random], str]
TRACES = [Path(__file__).parent / "data" / "kineto" / f"interleaved_rank{rank}.json.gz" for rank in (0, 1)]
SCHEDULE = pipesim.build("interleaved", ranks=2, microbatches=4, virtual=2)
TIMES = parse_costs("F=1ms,I=1ms,W=1ms,C=0.1ms")
MANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

COSTS = json.dumps(
    {"format": "pipesim-costs", "latency_s": 1e-5, "bytes_per_s": 1e10, "host_s": 1e-5}
    | {key: [0.01] * 4 for key in ("F", "I", "W", "message_bytes", "activation_bytes", "released_at_input")}
)
CLUSTER = {
    "name": "two-kinds",
    "nodes": [
        {"node": "dgx-h100", "count": 4},
        {"gpu": "my-gpu", "gpus": 8, "count": 2, "network": "ethernet", "nics": 1, "nic_gbit_per_s": 100},
    ],
    "levels": [{"name": "rack", "nodes": 2}, {"name": "spine", "kind": "ethernet", "gbit_per_s_per_node": 100}],
    "gpus": {"my-gpu": {"like": "ada", "memory_gib": 24, "memory_gb_per_s": 1000, "peak_tflops": {"bf16": 165}}},
}
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
ROW = {
    "id": "a", "layers": 8, "hidden": 1024, "heads": 8, "ffn": 4096, "vocab": 32000, "seq": 2048, "gpu": "H100",
    "num_gpus": 16, "tp": 2, "pp": 4, "micro_batch": 1, "global_batch": 32, "framework": "NeMo", "zero_stage": 1,
    "node_network_gbit_s": 3200, "fabric": "infiniband", "recompute": "selective",
}  # fmt: skip
SERVED = {
    "id": "b", "layers": 8, "hidden": 1024, "heads": 8, "ffn": 4096, "vocab": 32000, "gpu": "H100", "num_gpus": 8,
    "tp": 2, "pp": 2, "input_len": 512, "output_len": 16, "batch": 8, "precision": "bf16", "engine": "vllm",
}  # fmt: skip


@pytest.fixture(scope="module")
def good() -> dict[str, str]:
    """Text of a good file by the end of its name."""
    with TemporaryDirectory() as folder:
        for ending in ("json", "csv", "txt"):
            write_schedule(SCHEDULE, Path(folder, f"s.{ending}"), transfers=ending == "csv")
        program = pipesim.lower(SCHEDULE)
        save_timeline(pipesim.simulate(program, TIMES.of(SCHEDULE)), Path(folder, "t.jsonl"))
        texts = {path.suffix[1:]: path.read_text() for path in Path(folder).iterdir()}
    trace = gzip.decompress(TRACES[0].read_bytes()).decode()
    lengths, requests = "100 200 300 400\n1,2,3,4 # x\n", "arrival_s,prompt_tokens,output_tokens\n0,10,20\n1.5,3,4\n"
    return texts | {"trace": trace, "lengths": lengths, "requests": requests}


def refused_or_used(text: str, use: Callable[[Path], object], name: str) -> None:
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy's, of numbers that overflowed
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            use(path)
        except PipesimError as error:
            assert str(error), type(error)  # noqa: PT017 - one that is fine to be raised


def use_schedule(path: Path) -> None:
    schedule = read_schedule(path)
    check(schedule)
    pipesim.simulate(pipesim.lower(schedule), TIMES.of(schedule))


def use_timeline(path: Path) -> None:
    made = load_timeline(path)
    figures = pipesim.summarize(made)
    chart(made, figures)
    write_trace(made, path.with_name("trace.json"))
    save_timeline(made, path.with_suffix(".npz"))


def use_costs(path: Path) -> None:
    found = read_costs_file(path)
    found.typical_times(2)
    pipesim.simulate(pipesim.lower(SCHEDULE), found.of(SCHEDULE))


def use_trace(path: Path) -> None:
    pipesim.summarize(read_profiler_traces([path, TRACES[1]]))


READERS: dict[str, tuple[str, Callable[[Path], object], tuple[Change, ...]]] = {
    "json": ("s.json", use_schedule, (changed_json, changed_text)),
    "csv": ("s.csv", use_schedule, (changed_text,)),
    "txt": ("s.txt", use_schedule, (changed_text,)),
    "jsonl": ("t.jsonl", use_timeline, (changed_line, changed_text)),
    "trace": ("t.json", use_trace, (changed_json,)),
    "lengths": ("l.txt", lambda path: read_lengths(path, microbatches=4), (changed_text,)),
    "requests": ("r.csv", read_requests, (changed_text,)),
}


@pytest.mark.parametrize("kind", READERS)
@MANY
@given(draw=st.randoms(use_true_random=False))
def test_files_of_what_runs(kind: str, good: dict[str, str], draw: random.Random) -> None:
    name, use, changes = READERS[kind]
    refused_or_used(draw.choice(changes)(good[kind], draw), use, name)


@MANY
@given(draw=st.randoms(use_true_random=False))
def test_costs(draw: random.Random) -> None:
    refused_or_used(draw.choice((changed_json, changed_text))(COSTS, draw), use_costs, "c.json")


@MANY
@given(draw=st.randoms(use_true_random=False))
def test_clusters(draw: random.Random) -> None:
    text = yaml.safe_dump(json.loads(changed_json(json.dumps(CLUSTER), draw)))
    refused_or_used(changed_text(text, draw) if draw.random() < 0.3 else text, pipesim.load_cluster, "c.yaml")


@MANY
@given(draw=st.randoms(use_true_random=False))
def test_models(draw: random.Random) -> None:
    cluster, layout = pipesim.load_cluster("dgx-h100:1x4"), pipesim.Layout(tp=2, pp=2, global_batch=4, seq=512)
    schedule = pipesim.build("1f1b", ranks=2, microbatches=4)

    def use(path: Path) -> None:
        made = pipesim.estimate(pipesim.load_model(str(path)), cluster, layout, schedule.placement)
        pipesim.simulate(pipesim.lower(schedule), made.costs)

    refused_or_used(changed_json(json.dumps(MODEL), draw), use, "config.json")


@pytest.mark.parametrize("row", [ROW, SERVED], ids=["training", "serving"])
@MANY
@given(draw=st.randoms(use_true_random=False))
def test_rows(row: dict[str, Any], draw: random.Random) -> None:
    """A row gets an error of its own, and it is never one that nobody thought of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = predict_line(draw.choice((changed_json, changed_json, changed_text))(json.dumps(row), draw))
    json.dumps(found, allow_nan=False)
    assert not re.match(r"\w*(Error|Warning)\b", str(found.get("error", "")))
