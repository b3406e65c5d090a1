"""Runs a page's blocks in one folder and one Python namespace, from top to bottom."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipesim.cli import main
from tests.docs.blocks import PRINTS, Block, Command, blocks, commands
from tests.docs.compare import differs

ROOT = Path(__file__).resolve().parents[2]
WIDTH = "120"  # columns of tables
LIMIT_S = 200  # of one command
_SHELL_SIGNS = set("|<>;&$*")


def run_page(text: str, folder: Path) -> None:
    """Run every block of a page in a folder; raises AssertionError that says which line failed, and how."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: list[str] = []
    for block in blocks(text):
        where = f"line {block.line}"
        if block.is_file:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.title == PRINTS:
            _compare(block, block.text.splitlines(), printed, where)
        elif block.is_run and block.language == "python":
            printed = _run_python(block, namespace).splitlines()
        elif block.is_run:
            for command in commands(block):
                _run_and_compare(block, command, where)


def _run_python(block: Block, namespace: dict[str, Any]) -> str:
    """What the program prints. Lines of its traceback are those of the page."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        program = compile("\n" * block.line + block.text, "page", "exec")
        exec(program, namespace)
    return out.getvalue()


def _run_and_compare(block: Block, command: Command, where: str) -> None:
    status, printed, said = _run(command.text)
    expected = int(block.notes.get("exit status", "0")) if command == commands(block)[-1] else 0
    story = f"{where}: {command.text}\nended with status {status}, not {expected}:\n{printed}\n{said}"
    assert status == expected, story
    if command.shown is not None:  # of what goes well only stdout is shown: progress and warnings are not the answer
        _compare(block, command.shown, (printed or said).splitlines(), f"{where}: {command.text}")


def _compare(block: Block, shown: list[str], printed: list[str], where: str) -> None:
    tolerance = float(block.notes.get("tolerance", "0.2%").removesuffix("%")) / 100
    difference = differs(shown, printed, tolerance=tolerance, numbers="output varies" not in block.notes)
    assert difference is None, f"{where}\n{difference}\n--- all that was printed:\n" + "\n".join(printed)


def _run(command: str) -> tuple[int, str, str]:
    """Status, stdout, stderr; `pipesim` without a shell's help in this process, which is faster."""
    words = shlex.split(command)
    if words[0] == "pipesim" and not _SHELL_SIGNS & set(command):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = main(words[1:])
        return status, out.getvalue(), err.getvalue()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=LIMIT_S, env=os.environ | {"PATH": path}
    )
    return done.returncode, done.stdout, done.stderr
