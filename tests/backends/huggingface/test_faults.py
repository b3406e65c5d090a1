"""Checkpoints that are not whole, or another model's: named errors, before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipesim.backends.huggingface.folder import INDEX, SINGLE, BadCheckpoint, open_folder
from pipesim.backends.huggingface.load import stored_weights
from pipesim.backends.model.config import tiny_decoder
from pipesim.backends.model.initial import initialize
from pipesim.backends.model.stage import DecoderStage, build_stage, stages_of
from pipesim.costs.layouts.layout import Layout
from pipesim.files import CannotRead

CONFIG = tiny_decoder(hidden_size=16, intermediate_size=24, num_hidden_layers=2, vocab_size=16)
NAME = "model.layers.1.mlp.down_proj.weight"


def stage() -> DecoderStage:
    made = build_stage(CONFIG, Layout(), stages_of(CONFIG, Layout(), 1)[0], torch.float32)
    made.to_empty(device="cpu")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = stage()
    initialize(made.weights(), seed=1, std=0.1, part=lambda weight, value: value)
    save_file({name: weight.detach() for name, weight in made.weights().items()}, tmp_path / SINGLE)
    return tmp_path


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / SINGLE)
    change(tensors)
    save_file(tensors, folder / SINGLE)


def load(folder: Path) -> DecoderStage:
    made = stage()
    stored_weights(folder)(made.weights())
    return made


def test_a_whole_one_is_read(folder: Path) -> None:
    assert torch.equal(load(folder).weights()[NAME], load_file(folder / SINGLE)[NAME])


def test_missing_tensors_are_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.pop(NAME))
    with pytest.raises(BadCheckpoint, match=f"it lacks {NAME}$"):
        load(folder)


def test_mismatched_tensors_are_named_with_both_shapes(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({NAME: torch.zeros(16, 8)}))
    with pytest.raises(BadCheckpoint, match=rf"{NAME} is \[16, 8\], the model's is \[16, 24\]"):
        load(folder)


def test_tensors_that_the_model_does_not_have_are_named(folder: Path) -> None:
    bias = NAME.replace("weight", "bias")
    rewrite(folder, lambda tensors: tensors.update({bias: torch.zeros(16), "model.layers.9.x": torch.zeros(1)}))
    with pytest.raises(BadCheckpoint, match=f"the model has no {bias}; its config.json is another model's"):
        load(folder)


@pytest.mark.parametrize("keep", [0, 5, 100, -3])
def test_a_file_that_is_cut_off(folder: Path, keep: int) -> None:
    data = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(data[:keep])
    with pytest.raises(CannotRead, match="not a whole safetensors file"):
        load(folder)


def test_a_file_of_noise(folder: Path) -> None:
    (folder / SINGLE).write_bytes(b"\xff" * 1000)
    with pytest.raises(CannotRead, match="not a whole safetensors file"):
        load(folder)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ("[]", CannotRead, "not an index"),
        ('{"weight_map": {"a": 1}}', CannotRead, "must give a file for each tensor"),
        ('{"weight_map": {"a": "../b.safetensors"}}', CannotRead, "not the name of a file in the same folder"),
        ('{"weight_map": {"a": "b.safetensors"}}', BadCheckpoint, "its index names b.safetensors, which is not there"),
    ],
)
def test_an_index_that_leads_nowhere(tmp_path: Path, index: str, error: type[Exception], message: str) -> None:
    (tmp_path / INDEX).write_text(index)
    with pytest.raises(error, match=message):
        open_folder(tmp_path)


def test_an_index_that_names_what_its_file_lacks(folder: Path) -> None:
    names = load_file(folder / SINGLE)
    rewrite(folder, lambda tensors: tensors.pop(NAME))
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, SINGLE)}))
    with pytest.raises((BadCheckpoint, CannotRead), match=NAME):
        load(folder)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match=r"there is neither model\.safetensors nor"):
        open_folder(tmp_path)
