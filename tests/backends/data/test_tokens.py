"""Text to tokens and back, and samples that follow from seed and step."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
import torch

from pipesim.backends.data.samples import Samples, TooLittleText, samples_of
from pipesim.backends.data.tokens import Bytes, VocabularyTooSmall, built_in_text, load_tokenizer
from pipesim.files import CannotRead


def test_bytes_there_and_back() -> None:
    text = "Grüße, mill! ✓"
    assert Bytes().decode(Bytes().encode(text)) == text
    assert Bytes().decode([72, 300, 105]) == "Hi"  # what is no byte is left out


def test_a_tokenizer_file(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 0, "mill": 5, "?": 1}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        tokenizer = load_tokenizer(str(place))
        assert tokenizer.encode("the mill turns") == [0, 5, 1]
        assert tokenizer.vocabulary == 6


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(CannotRead, match="not a tokenizer file"):
        load_tokenizer(str(path))
    assert isinstance(load_tokenizer(None), Bytes)


def test_every_window_comes_once_an_epoch_in_any_batching() -> None:
    samples = Samples(torch.arange(41), seq=4, seed=3)
    one_by_one = torch.cat([samples.batch(step, 1)[0] for step in range(20)])
    in_fives = torch.cat([samples.batch(step, 5)[0] for step in range(4)])
    assert torch.equal(one_by_one, in_fives)
    for epoch in one_by_one.split(10):
        assert sorted(epoch.flatten().tolist()) == list(range(40))
    assert not torch.equal(one_by_one[:10], one_by_one[10:])


def test_targets_are_the_tokens_after() -> None:
    inputs, targets = Samples(torch.arange(41), seq=4).batch(0, 3)
    assert torch.equal(targets, inputs + 1)


def test_text_and_model_must_fit() -> None:
    with pytest.raises(VocabularyTooSmall, match="model m has 100 tokens, the text needs 123"):
        samples_of("xyz", Bytes(), seq=2, seed=0, model="m", rows=100)
    with pytest.raises(TooLittleText, match=r"a text of 3 tokens does not fill a sequence of 8.*--seq 2"):
        samples_of("abc", Bytes(), seq=8, seed=0, model="m", rows=256)


def test_the_built_in_text_trains_the_built_in_model() -> None:
    assert samples_of(built_in_text(), Bytes(), seq=64, seed=0, model="tiny-llama", rows=256).windows > 90
