"""Models saved by `transformers`: our logits are its logits, and what we write it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipesim.backends.batch import cut_batch
from pipesim.backends.huggingface.export import export, plan_files
from pipesim.backends.huggingface.load import stored_weights
from pipesim.backends.model.config import load_decoder
from pipesim.backends.parallel.decoders import decoder_stages, decoder_ties
from pipesim.backends.parallel.pipeline import ParallelOptions, ParallelPipeline
from pipesim.backends.parallel.places import make_places
from pipesim.backends.parallel.sources import checkpoint_names
from pipesim.costs.layouts.layout import Layout
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build
from tests.backends.group import run_group
from tests.backends.huggingface.models import KINDS, TOKENS, load, logits_of, make

LAYOUTS: tuple[dict[str, Any], ...] = ({"pp": 2, "tp": 2}, {"pp": 4}, {"tp": 4, "sequence_parallel": True})


def read_and_write(folders: list[str], out: str) -> dict[tuple[str, int], list[Any]]:
    """Logits by folder and layout, on the ranks that have them; each folder is written again, in several files."""
    found = {}
    for folder in folders:
        config = load_decoder(folder)
        for number, degrees in enumerate(LAYOUTS):
            places = make_places(Layout(seq=12, **degrees))
            pipeline = ParallelPipeline(
                lower(build("1f1b", ranks=places.layout.pp, microbatches=2)),
                places,
                decoder_stages(config, places, places.layout.pp, fill=stored_weights(folder), gather_logits=True),
                loss_fn=None,
                options=ParallelOptions(ties=decoder_ties(config, places.layout, places.layout.pp)),
            )
            result = pipeline.evaluate(cut_batch(TOKENS, microbatches=2))
            if result.outputs:
                parts: list[Tensor] = [result.outputs[key] for key in sorted(result.outputs)]
                found[Path(folder).name, number] = torch.cat(parts).tolist()
            export(
                Path(out) / f"{Path(folder).name}-{number}",
                config,
                checkpoint_names(pipeline.modules),
                writes=places.tp_rank == 0,
                most_bytes=20_000,
            )
    return found


@pytest.mark.slow
def test_logits_and_what_is_written_are_those_of_transformers(tmp_path: Path) -> None:
    models = {kind: make(tmp_path / "in" / kind, kind) for kind in KINDS}
    make(tmp_path / "in" / "llama", "llama").save_pretrained(tmp_path / "in" / "llama", max_shard_size="20KB")
    folders = [str(tmp_path / "in" / kind) for kind in KINDS]
    found: dict[tuple[str, int], Any] = {}
    for one in run_group(4, read_and_write, folders, str(tmp_path / "out"), timeout_s=150):
        found |= one
    assert len(found) == len(KINDS) * len(LAYOUTS)
    for (kind, number), logits in found.items():
        expected = logits_of(models[kind])
        assert torch.allclose(torch.tensor(logits), expected, rtol=0, atol=1e-5), (kind, LAYOUTS[number])
    for kind, model in models.items():
        for number in range(len(LAYOUTS)):
            again = load(tmp_path / "out" / f"{kind}-{number}")
            assert torch.equal(logits_of(again), logits_of(model)), (kind, LAYOUTS[number])


def test_files_are_no_larger_than_asked_for_and_no_tensor_is_in_two() -> None:
    plans = plan_files([{"a": 4, "b": 5, "c": 20}, {}, {"b": 5, "d": 1}], 9)
    assert plans == [
        {"model-00001-of-00003.safetensors": ["a", "b"], "model-00002-of-00003.safetensors": ["c"]},
        {},
        {"model-00003-of-00003.safetensors": ["d"]},
    ]
    assert plan_files([{"a": 1}, {}], 9) == [{"model.safetensors": ["a"]}, {}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "model", "llama")
    return tmp_path / "model"


@pytest.mark.slow
def test_an_exported_config_says_what_the_weights_are(folder: Path, tmp_path: Path) -> None:
    run_group(2, write_half, str(folder), str(tmp_path / "out"))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["dtype"]) == ("llama", "bfloat16")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    assert load(tmp_path / "out").dtype == torch.bfloat16


def write_half(folder: str, out: str) -> None:
    config, places = load_decoder(folder), make_places(Layout(pp=2))
    modules = {places.pp_rank: decoder_stages(config, places, 2, fill=stored_weights(folder))(places.pp_rank)}
    export(out, config, checkpoint_names(modules), writes=True, dtype=torch.bfloat16)
