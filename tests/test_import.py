"""The public face: a list of names, each imported when it is first used, and quick to import."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pipesim

EAGER_NEVER = {"torch", "plotly", "numba", "simpy", "pydantic", "typer", "numpy", "yaml", "rich"}


def _in_a_new_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def test_import_loads_nothing_else() -> None:
    loaded = json.loads(_in_a_new_python("import json, sys, pipesim; print(json.dumps(list(sys.modules)))"))
    assert {name for name in loaded if name.startswith("pipesim.")} == set()
    assert EAGER_NEVER & set(loaded) == set()


def test_import_costs_less_than_importing_numpy() -> None:
    """Measured against numpy in the same process, least of five: a busy machine slows both."""
    code = "\n".join(
        [
            "from time import perf_counter as now",
            "start = now(); import pipesim; middle = now(); import numpy; end = now()",
            "print((middle - start) / (end - middle))",
        ]
    )
    assert min(float(_in_a_new_python(code)) for _ in range(5)) < 0.5


def test_every_public_name_is_there_and_is_the_one_its_module_has() -> None:
    for name, module in pipesim._PUBLIC.items():
        assert getattr(pipesim, name) is getattr(import_module(module), name), name
    assert set(pipesim.__all__) <= set(dir(pipesim))


def test_no_public_name_is_a_module_of_ours() -> None:
    """Importing `pipesim.simulate` somewhere would turn a function of that name into the module."""
    assert [name for name in pipesim._PUBLIC if find_spec(f"pipesim.{name}")] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(pipesim, "no_such_name")


def test_type_checkers_see_the_same_names() -> None:
    """After a change of the list: `make stub`."""
    stub = Path(pipesim.__file__).with_suffix(".pyi").read_text()
    for name, module in pipesim._PUBLIC.items():
        assert f"from {module} import {name} as {name}\n" in stub
    assert stub.count(" import ") == len(pipesim._PUBLIC)
