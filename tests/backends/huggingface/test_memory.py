"""A rank that loads its stage of four takes less than 40 % of the memory that the whole model takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipesim.backends.huggingface.folder import SINGLE
from pipesim.backends.model.config import tiny_decoder
from pipesim.backends.model.initial import initialize
from pipesim.backends.model.stage import build_stage, stages_of
from pipesim.costs.layouts.layout import Layout

CONFIG = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 4096,
}  # 42 million weights: 168 MB

PROGRAM = """
import sys, torch
from pipesim.backends.huggingface.load import stored_weights
from pipesim.backends.model.config import tiny_decoder
from pipesim.backends.model.stage import build_stage, stages_of
from pipesim.costs.layouts.layout import Layout
import json

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

folder, stages, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config, layout = tiny_decoder(**json.loads(sys.argv[4])), Layout(pp=stages)
before = peak()
made = build_stage(config, layout, stages_of(config, layout, stages)[number], torch.float32)
made.to_empty(device="cpu")
stored_weights(folder)(made.weights())
print(peak() - before)
"""


def loading(folder: Path, stages: int, number: int) -> int:
    """Bytes by which the peak of a process grows when it loads a stage."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(stages), str(number), json.dumps(CONFIG)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_rank_reads_its_own_part_only(tmp_path: Path) -> None:
    config = tiny_decoder(**CONFIG)
    whole = build_stage(config, Layout(), stages_of(config, Layout(), 1)[0], torch.float32)
    whole.to_empty(device="cpu")
    initialize(whole.weights(), seed=0, std=0.02, part=lambda weight, value: value)
    save_file({name: weight.detach() for name, weight in whole.weights().items()}, tmp_path / SINGLE)
    size = sum(weight.nbytes for weight in whole.parameters())
    everything = loading(tmp_path, 1, 0)
    assert everything > size
    for number in (0, 1, 3):
        assert loading(tmp_path, 4, number) < 0.4 * everything
