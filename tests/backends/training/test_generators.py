"""States of random numbers in a checkpoint; those of a GPU with a stand-in, and on one where there is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from pipesim.backends.training.progress import generators, restore_generators

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_of_a_cpu() -> None:
    kept = json.loads(json.dumps(generators(CPU)))
    assert set(kept) == {"generator"}
    expected = torch.rand(3)
    restore_generators(kept, CPU)
    assert torch.equal(torch.rand(3), expected)


def test_of_a_gpu_by_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of a CPU goes on on a GPU, too."""
    state, given = torch.arange(16, dtype=torch.uint8), []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda value, device: given.append((value.tolist(), device)))
    kept: dict[str, Any] = json.loads(json.dumps(generators(CUDA)))
    restore_generators(generators(CPU), CUDA)
    assert not given
    restore_generators(kept, CUDA)
    assert given == [(state.tolist(), CUDA)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_of_a_gpu() -> None:
    kept = json.loads(json.dumps(generators(CUDA)))
    expected = torch.rand(3, device=CUDA)
    restore_generators(kept, CUDA)
    assert torch.equal(torch.rand(3, device=CUDA), expected)
