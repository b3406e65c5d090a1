"""Finds a model: by catalogue name, by path to a `config.json`, or by a folder that holds one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from pipesim.costs.models.config_fields import BadConfig
from pipesim.costs.models.hf_config import read_config
from pipesim.costs.models.model import Model
from pipesim.errors import PipesimError

CATALOG = Path(__file__).parents[1] / "catalog" / "models"
MAX_CONFIG_BYTES = 1 << 20
"""A real `config.json` has a few kilobytes."""


@dataclass(eq=False)
class UnknownModel(PipesimError):
    """Neither a catalogue name nor a path."""

    name: str
    close: tuple[str, ...]

    def __str__(self) -> str:
        hint = f"close: {', '.join(self.close)}" if self.close else f"known: {', '.join(model_names())}"
        return f"unknown model {self.name!r}, and no file or folder of that name; {hint}"


def model_names() -> tuple[str, ...]:
    """Names in the catalogue, sorted."""
    return tuple(sorted(path.stem for path in CATALOG.glob("*.json")))


def load_model(name: str | Path) -> Model:
    """Model of a catalogue name ("llama-3-70b"), a Hugging Face `config.json`, or a folder that holds one."""
    path = Path(name)
    if isinstance(name, str) and "/" not in name:
        known = name.lower().replace("_", "-")
        if known in model_names():
            return _catalogue_model(known)
    try:
        if path.is_dir():
            return read_model(path / "config.json")
        if path.exists():
            return read_model(path)
    except (OSError, ValueError) as error:  # a name too long for the system, or with a NUL in it
        raise UnknownModel(str(name)[:80], ()) from error
    if path.suffix == ".json" or "/" in str(name):
        hint = "give a config.json, a folder with one, or a model name"
        raise BadConfig(str(name), f"no such file or folder; {hint}")
    raise UnknownModel(str(name), tuple(get_close_matches(str(name).lower(), model_names(), n=3, cutoff=0.5)))


@cache
def _catalogue_model(name: str) -> Model:
    return read_model(CATALOG / f"{name}.json", name=name)


def read_model(path: Path, *, name: str | None = None) -> Model:
    """Model of one `config.json`, called after its folder (or file) where `name` is not given."""
    config = _read_json(path)
    label = path.resolve().parent.name if path.name == "config.json" else path.stem
    return read_config(config, source=str(path), name=name or label)


def catalogue_source(name: str) -> str:
    """Where the catalogue has a model's numbers from."""
    return str(_read_json(CATALOG / f"{name}.json").get("_source", ""))


def _read_json(path: Path) -> Mapping[str, object]:
    source = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise BadConfig(source, f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_CONFIG_BYTES:
        raise BadConfig(source, f"is larger than {MAX_CONFIG_BYTES} bytes, so it is not a config.json")
    try:
        config = json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise BadConfig(source, "is nested too deeply to be a config.json") from None
    except UnicodeDecodeError:
        raise BadConfig(source, "is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadConfig(source, f"is not JSON: {error.msg} at {where}") from None
    except ValueError:
        raise BadConfig(source, "holds a number of too many digits") from None
    if not isinstance(config, dict):
        raise BadConfig(source, f"must be a JSON object, not {type(config).__name__}")
    return config
