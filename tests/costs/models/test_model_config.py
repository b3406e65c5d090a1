"""Reading models: names, folders and files, and everything that can be wrong with them."""

import json
import pickle
from pathlib import Path

import pytest

from pipesim.costs.models.config_fields import BadConfig
from pipesim.costs.models.hf_config import UnknownArchitecture
from pipesim.costs.models.model import BadModel, Experts, LayerKind, Model
from pipesim.costs.models.model_catalog import CATALOG, MAX_CONFIG_BYTES, UnknownModel, load_model
from pipesim.errors import PipesimError

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100,
}  # fmt: skip


def write(folder: Path, content: object) -> Path:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_model_is_found_by_name_file_and_folder(tmp_path: Path) -> None:
    config = write(tmp_path, (CATALOG / "llama-3-70b.json").read_text())
    by_name, by_file, by_folder = load_model("llama-3-70b"), load_model(config), load_model(str(tmp_path))
    assert by_file == by_folder
    assert by_name.layers == by_file.layers == 80
    assert (by_name.name, by_folder.name) == ("llama-3-70b", tmp_path.name)
    assert load_model("Llama-3-70B") == by_name


def test_an_unknown_name_gives_close_matches() -> None:
    with pytest.raises(UnknownModel) as error:
        load_model("llama3-70b")
    assert "close: llama-3-70b" in str(error.value)


def test_a_name_close_to_nothing_lists_the_catalogue() -> None:
    with pytest.raises(UnknownModel, match=r"known: bloom-176b, .*tiny-llama"):
        load_model("zzz")


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\0b", "llama-3-70b\n"])
def test_odd_names_are_unknown_models(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipesimError):
        load_model(name)


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(BadConfig, match="no such file or folder"):
        load_model("/nowhere/config.json")


BROKEN = {
    "truncated": ('{"model_type": "llama", "hidden', "is not JSON: .* at line 1, column"),
    "empty": ("", "is not JSON"),
    "a list": ("[1, 2]", "must be a JSON object, not list"),
    "deep": ('{"a":' * 100_000, "nested too deeply"),
    "a huge number": ('{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}", "too many digits"),
    "huge": ('{"a": "' + "x" * MAX_CONFIG_BYTES + '"}', "larger than"),
    "no type": ("{}", r"model type '\(none given\)' is not known; known: .* it lacks hidden_size, "),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_config_is_one_clear_error(kind: str, tmp_path: Path) -> None:
    text, message = BROKEN[kind]
    with pytest.raises(PipesimError, match=message) as error:
        load_model(write(tmp_path, text))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(BadConfig, match="not UTF-8"):
        load_model(path)


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"config.json: cannot be read: No such file"):
        load_model(tmp_path)


def test_all_missing_fields_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="llama needs num_attention_heads, num_hidden_layers, intermediate_size"):
        load_model(write(tmp_path, {"model_type": "llama", "hidden_size": 64, "vocab_size": 100}))


WRONG = {
    "text": ({"hidden_size": "64"}, "hidden_size = '64' must be a whole number"),
    "fraction": ({"hidden_size": 64.5}, "hidden_size = 64.5 must be a whole number"),
    "negative": ({"num_hidden_layers": -1}, "num_hidden_layers = -1 must be a whole number from 1"),
    "true": ({"vocab_size": True}, "vocab_size = True must be a whole number"),
    "not a number": ({"intermediate_size": float("nan")}, "intermediate_size = nan must be a whole number"),
    "too many layers": ({"num_hidden_layers": 10**9}, "layers = 1000000000 must be a whole number from 1 to"),
    "heads": ({"num_key_value_heads": 3}, "4 attention heads are not a multiple of 3 .* work: 1, 2, 4"),
    "flag": ({"tie_word_embeddings": "yes"}, "tie_word_embeddings = 'yes' must be true or false"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_values_are_named(kind: str, tmp_path: Path) -> None:
    change, message = WRONG[kind]
    with pytest.raises(PipesimError, match=message):
        load_model(write(tmp_path, {**LLAMA, **change}))


def test_an_unknown_architecture_names_what_a_llama_would_need(tmp_path: Path) -> None:
    config = {"model_type": "mamba", "hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 2}
    with pytest.raises(UnknownArchitecture, match=r"'mamba' is not known.*lacks num_attention_heads, intermediate"):
        load_model(write(tmp_path, config))
    with pytest.raises(UnknownArchitecture, match='set "model_type": "llama"'):
        load_model(write(tmp_path, {**LLAMA, "model_type": "newcomer"}))


def test_what_a_config_leaves_out_is_the_class_s_default(tmp_path: Path) -> None:
    text = {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024,
    }  # fmt: skip
    model = load_model(write(tmp_path, {"model_type": "gemma3", "text_config": text}))
    assert (model.heads, model.kv_heads, model.head_dim, model.vocab) == (8, 4, 256, 262208)


def test_windows_by_layer() -> None:
    gemma2, gemma3 = load_model("gemma-2-9b"), load_model("gemma-3-27b")
    assert [kind.window for kind in gemma2.kinds()[:4]] == [4096, None, 4096, None]
    assert [kind.window for kind in gemma3.kinds()[:7]] == [1024, 1024, 1024, 1024, 1024, None, 1024]
    assert set(load_model("mistral-7b").kinds()) == {LayerKind(window=4096)}
    assert set(load_model("llama-3-8b").kinds()) == {LayerKind()}


def test_dense_layers_of_a_mixture() -> None:
    mixtures = [kind.mixture for kind in load_model("deepseek-v3").kinds()]
    assert (mixtures.index(True), sum(mixtures)) == (3, 58)


def test_more_experts_a_token_than_there_are() -> None:
    experts = Experts(count=8, per_token=9, ffn=64)
    with pytest.raises(BadModel, match="visits 9 of 8 experts; that must be from 1 to 8"):
        Model(
            name="m", architecture="x", layers=1, hidden=8, heads=1, kv_heads=1, head_dim=8, ffn=8, vocab=8,
            experts=experts,
        )  # fmt: skip


def test_absurd_heads_are_refused_at_once() -> None:
    """Listing every divisor of a huge number of heads took hours."""
    row = {"layers": 1, "hidden": 1 << 39, "heads": 1 << 39, "kv_heads": 7, "ffn": 8, "vocab": 10}
    with pytest.raises(BadModel, match="work: 1, 2, 4, 8, 16"):
        Model.from_fields(row)


WRONG_ROWS = {
    "flag": ({"gated_mlp": [1]}, r"gated_mlp = \[1\] must be true or false"),
    "choice": ({"norm": "batch"}, "norm = 'batch' must be one of rms, layer"),
    "experts": ({"experts": 8}, "experts = 8 must be Experts or left out"),
    "window": ({"sliding_window": 0}, "sliding_window = 0 must be a whole number from 1 to"),
    "hidden": ({"hidden": "wide"}, "hidden = 'wide' must be a whole number"),
}


@pytest.mark.parametrize("kind", WRONG_ROWS)
def test_wrong_fields_of_a_row_are_named(kind: str) -> None:
    change, message = WRONG_ROWS[kind]
    with pytest.raises(BadModel, match=message):
        Model.from_fields({"layers": 2, "hidden": 64, "heads": 2, "vocab": 10, **change})


def test_a_row_without_shape() -> None:
    with pytest.raises(BadModel, match="needs layers, hidden, vocab; missing: layers, vocab"):
        Model.from_fields({"model": "m", "hidden": 64})
