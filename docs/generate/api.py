"""The reference of the Python API: the public names, then every package with the docstrings of its modules."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterable
from pathlib import Path

import pipesim

_ROOT = Path(pipesim.__file__).parent
# In the order of the layers; for the rest their own first line says what they are.
_ABOUT: dict[str, str] = {
    "pipesim": "Errors, units, timelines and their figures.",
    "pipesim.ir": "Actions, placements, schedules, programs, checks, files.",
    "pipesim.schedules": "The families, and from a name to a schedule.",
    "pipesim.costs": "Models, clusters, layouts; seconds and bytes.",
    "pipesim.engine": "The two engines.",
    "pipesim.plan": "Choosing a layout, predicting many, searching for orders.",
    "pipesim.serving": "Inference of many requests.",
    "pipesim.viz": "Charts, reports, traces.",
    "pipesim.backends": "Running on processes.",
    "pipesim.backends.launch": "Starting a job on many nodes.",
    "pipesim.viz.look": "Colours, axes and words of charts.",
    "pipesim.viz.panels": "The panels of a chart.",
    "pipesim.viz.sections": "The parts of a page around its charts.",
}
_LEFT_OUT = ("pipesim.cli", "pipesim.costs.catalog")


def packages() -> dict[str, str]:
    """Every package with public modules, and what it is: the main ones in order, each with those below it."""
    found = dict.fromkeys(_ABOUT, "")
    for folder, _, files in sorted(os.walk(_ROOT, followlinks=True)):
        init = Path(folder, "__init__.py")
        name = ".".join(("pipesim", *init.parent.relative_to(_ROOT).parts))
        if "__init__.py" in files and not name.startswith(_LEFT_OUT) and modules(name):
            about = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
            found[name] = _ABOUT.get(name) or next(iter(about.splitlines()), "")
    return {name: found[name] for top in _main(found) for name in _below(top, found)}


def _main(found: Iterable[str]) -> list[str]:
    return [name for name in found if name.count(".") < 2]


def _below(top: str, found: Iterable[str]) -> list[str]:
    """A main package and those inside it."""
    return [name for name in found if name == top or (top != "pipesim" and name.startswith(f"{top}."))]


def pages() -> dict[str, str]:
    """File below the documentation's folder -> its text."""
    return {"api/index.md": _index()} | {f"api/{name}.md": _package(name, about) for name, about in packages().items()}


def titles() -> list[tuple[str, list[tuple[str, str]]]]:
    """The main packages with (title, file) of themselves and those below."""
    found = packages()
    return [(top, [(name, f"api/{name}.md") for name in _below(top, found)]) for top in _main(found)]


def _index() -> str:
    rows = []
    for name in sorted(set(vars(pipesim)["__all__"]) - {"__version__"}, key=str.lower):
        value = getattr(pipesim, name)
        about = next(iter((inspect.getdoc(value) or "").splitlines()), "")
        rows.append(f"| [`pipesim.{name}`][{value.__module__}.{value.__qualname__}] | {_in_table(about)} |")
    listed = [f"| [`{package}`]({package}.md) | {about} |" for package, about in packages().items()]
    return "\n".join(
        [
            "# Python API\n",
            "`import pipesim` has the names that most programs need; it imports neither torch nor plotly until one of "
            "them is used. The rest is in packages below it.\n",
            "## Public names\n",
            "| name | |\n|---|---|",
            *rows,
            "\n## Packages\n",
            "| package | |\n|---|---|",
            *listed,
            "",
        ]
    )


def _package(package: str, about: str) -> str:
    parts = [f"# {package}\n", f"{about}\n"]
    for module in modules(package):
        parts += [f"::: {module}\n"]
    return "\n".join(parts)


def modules(package: str) -> list[str]:
    """The modules right in a package that have something public."""
    paths = sorted(_ROOT.joinpath(*package.split(".")[1:]).glob("*.py"))
    return [f"{package}.{path.stem}" for path in paths if not path.name.startswith("_") and _has_public(path)]


def _has_public(path: Path) -> bool:
    """Whether a module defines a documented public class or function."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    )


def _in_table(text: str) -> str:
    return text.replace("|", "\\|")
