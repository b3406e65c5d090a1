"""Greedy generation gives the tokens of `transformers`; drawn tokens do not depend on layout or grouping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipesim.backends.generate.job import Generated, Request, generate
from pipesim.backends.generate.sampling import Sampling
from pipesim.backends.job.worker import Context
from pipesim.backends.model.config import load_decoder
from pipesim.costs.layouts.layout import Layout
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.schedules.inference import decode
from tests.backends.group import run_group
from tests.backends.huggingface.models import make

PROMPTS = ((3, 5, 7), (1,), (9, 8, 7, 6, 5, 4), (2, 2, 2, 2), (60, 61, 62))
NEW = 10
Case = tuple[dict[str, Any], int, Sampling, tuple[int, ...]]  # degrees, groups, sampling, stop tokens


def request(folder: str, degrees: dict[str, Any], groups: int, sampling: Sampling, stop: tuple[int, ...]) -> Request:
    layout = Layout(**degrees, global_batch=degrees.get("dp", 1))
    program = lower(decode(ranks=layout.pp, microbatches=groups, slices=NEW))
    return Request(program, load_decoder(folder), layout, PROMPTS, sampling, stop, folder, dtype="fp64")


def generated(requests: list[Request]) -> list[Generated | None]:
    context = Context(torch.distributed.get_rank(), torch.distributed.get_world_size(), torch.device("cpu"))
    return [generate(context, one) for one in requests]


def run(folder: Path, cases: list[Case]) -> list[Generated]:
    requests = [request(str(folder), *case) for case in cases]
    found = run_group(requests[0].layout.gpus, generated, requests)[0]
    assert all(isinstance(one, Generated) for one in found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tied", "mistral"])
def test_greedy_tokens_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    model = make(tmp_path, kind).double()
    expected = []
    for prompt in PROMPTS:
        whole = model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, pad_token_id=0)
        expected.append(tuple(whole[0, len(prompt) :].tolist()))
    greedy = Sampling()
    stop = (expected[0][2], expected[3][-1])
    cases: list[Case] = [
        ({"pp": 2, "tp": 2}, 2, greedy, ()),
        ({"pp": 4}, 3, greedy, ()),
        ({"pp": 2, "dp": 2}, 2, greedy, ()),
    ]
    for one in run(tmp_path, cases):
        assert one.tokens == tuple(expected)
    (stopped,) = run(tmp_path, [({"pp": 2}, 2, greedy, stop)])
    assert stopped.tokens == tuple(until(tokens, stop) for tokens in expected)


def until(tokens: tuple[int, ...], stop: tuple[int, ...]) -> tuple[int, ...]:
    """Up to the first stop token, which is the last."""
    ends = [place for place, token in enumerate(tokens) if token in stop]
    return tokens[: ends[0] + 1] if ends else tokens


@pytest.mark.slow
def test_drawn_tokens_follow_from_the_seed_alone(tmp_path: Path) -> None:
    make(tmp_path, "llama")
    draw, other = Sampling(1.0, 20, 0.95, seed=3), Sampling(1.0, 20, 0.95, seed=4)
    first, second, third = run(
        tmp_path, [({"pp": 2}, 2, draw, ()), ({"tp": 2}, 3, draw, ()), ({"pp": 2}, 2, other, ())]
    )
    assert first.tokens == second.tokens != third.tokens


@pytest.mark.slow
def test_times_and_timeline(tmp_path: Path) -> None:
    make(tmp_path, "llama")
    case: Case = ({"pp": 2}, 2, Sampling(), ())
    (found,) = run(tmp_path, [case])
    timeline = found.timeline(request(str(tmp_path), *case).program)
    ops = timeline.program.ops
    last = (ops.kind == Kind.F) & (ops.stage == 1)
    assert max(found.first_token_s) == pytest.approx(timeline.end[last & (ops.slice == 0)].max(), abs=1e-3)
    assert found.tokens_per_s == pytest.approx(len(PROMPTS) * NEW / found.seconds)
    assert timeline.makespan_s <= found.seconds
    both = np.sort(timeline.start[timeline.boxes])
    assert len(both) == 2 * 2 * NEW  # stages, groups, tokens
