"""What `--help` of each command shows: the same options for the same things, and examples that run."""

import gzip
import itertools
import json
import re
import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pipesim.cli import app

TRACES = sorted((Path(__file__).parent.parent / "data" / "kineto").glob("interleaved_*.gz"))
ROW = {"model": "llama-3-8b", "gpu": "H100", "num_gpus": 8, "tp": 2, "pp": 4, "global_batch": 32, "seq": 4096}
LONG = ("plan", "search", "run", "profile", "validate", "generate")  # more than a second each


def examples() -> list[Any]:
    found = []
    for name in app.COMMANDS:
        for example in re.findall(r"Example: (.*)", _command(name).help):
            found.append(pytest.param(example, id=example, marks=[pytest.mark.slow] if name in LONG else []))
    return found


def _command(name: str) -> Any:
    return app._load(name)


class _Server:
    port = 8050

    def serve_forever(self) -> None:
        pass


def test_each_command_has_an_example() -> None:
    assert [name for name in app.COMMANDS if f"Example: pipesim {name}" not in _command(name).help] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", examples())
def test_examples_run(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with the files that they name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipesim.cli.playground.make_server", lambda host, port: _Server())
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    program, *args = shlex.split(example)
    assert program == "pipesim"
    if "simulated.npz" in args:
        case = ["interleaved", "-p", "2", "-m", "4", "-v", "2", "--costs", "F=1ms,B=2ms"]
        assert app.main(["simulate", *case, "--timeline", "simulated.npz"]) == 0
        for rank, trace in enumerate(TRACES):
            Path(f"rank{rank}.json").write_bytes(gzip.decompress(trace.read_bytes()))
    Path("rows.jsonl").write_text(json.dumps(ROW) + "\n")
    assert app.main(args) == 0
    assert all(Path(name).exists() for option, name in itertools.pairwise(args) if option == "--out")


def test_an_option_has_the_same_short_form_in_every_command() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for command in app.COMMANDS:
        for option in _command(command).params:
            if option.param_type_name == "option":
                short = [word for word in option.opts if not word.startswith("--")]
                for word in option.opts:
                    found[word] |= {" ".join(short)}
    assert {word: forms for word, forms in found.items() if len(forms) > 1} == {}


def test_charts_answer_to_the_same_names() -> None:
    for command in app.COMMANDS:
        for option in _command(command).params:
            if option.param_type_name == "option" and "chart" in option.help.lower() and "--json" not in option.opts:
                assert {"--out", "--chart"} <= set(option.opts) or option.name == "metric", command
