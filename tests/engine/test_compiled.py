"""Compiled code kept on disk is used again, but never after a change in a file it was made of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_CALLED = "from pipesim.engine.compiled import compiled\n\n@compiled\ndef called(value):\n    return value + {}\n"
_CALLER = """
from called import called
from pipesim.engine.compiled import compiled

@compiled
def caller(value):
    return 10 * called(value)

print(caller(1), sum(caller.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_change_in_another_file_compiles_anew(tmp_path: Path) -> None:
    """numba looks at the one file of a function: code for an older layout of tuples ran on, and a search ended in a
    segmentation fault."""
    (tmp_path / "caller.py").write_text(_CALLER)
    printed = []
    for added in (1, 1, 2):
        (tmp_path / "called.py").write_text(_CALLED.format(added))
        run = subprocess.run(
            [sys.executable, "caller.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
        )
        printed.append(run.stdout.split())
    assert printed == [["20", "0"], ["20", "1"], ["30", "0"]]
