"""What pages say in passing, between backquotes: options, Python names and files that are there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest

from pipesim.cli.app import COMMANDS, _load
from tests.docs.runner import ROOT
from tests.docs.test_pages import PAGES

_CODE = re.compile(r"`([^`\n]+)`")
_BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*\b")
_NAME = re.compile(r"\bpipesim(?:\.[A-Za-z_]\w*)+")
_FILE = re.compile(r"\b(?:benchmarks|tests|examples|docs|pipesim|schedules|backends|viz)/[\w./-]*\w")
# Of pip, torchrun and scripts of ours that are not commands.
_OTHERS = {"--extra-index-url", "--hold-out", "--quick", "--only"}


def _said(page: str) -> Iterator[str]:
    """What stands between backquotes, blocks left out."""
    text = _BLOCK.sub("", ROOT.joinpath(page).read_text(encoding="utf-8"))
    yield from _CODE.findall(text)


def _options() -> set[str]:
    found: set[str] = set(_OTHERS) | {"--help", "--version"}
    for name in COMMANDS:
        command = _load(name)
        for one in (command, *getattr(command, "commands", {}).values()):
            for parameter in one.params:
                found |= {*parameter.opts, *parameter.secondary_opts}
    return found


@pytest.mark.parametrize("page", PAGES)
def test_options_are_there(page: str) -> None:
    said = {option for code in _said(page) for option in _OPTION.findall(code)}
    assert said - _options() == set()


@pytest.mark.parametrize("page", PAGES)
def test_python_names_are_there(page: str) -> None:
    pytest.importorskip("torch")
    for code in _said(page):
        if "/" in code or code.startswith("pip install"):
            continue
        for name in _NAME.findall(code):
            assert _is_there(name), f"{page}: there is no {name}"


def _is_there(name: str) -> bool:
    module, rest = name, list[str]()
    while True:
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            if not module:
                return False
            continue
        for word in rest:
            if not hasattr(found, word):
                return False
            found = getattr(found, word)
        return True


@pytest.mark.parametrize("page", PAGES)
def test_files_are_there(page: str) -> None:
    said = {path for code in _said(page) if "*" not in code for path in _FILE.findall(code)}
    assert {path for path in said if not ROOT.joinpath(path).exists()} == set()
