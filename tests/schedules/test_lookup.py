"""Schedules by name, from a user's function, a plug-in or a file."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from pipesim.errors import PipesimError
from pipesim.ir.check import BrokenSchedule
from pipesim.ir.formats import write_schedule
from pipesim.schedules import lookup
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.lookup import build, find
from pipesim.schedules.one_f_one_b import one_f_one_b

_OWN = '''
from helper import NAME
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule


def build(*, ranks, microbatches, backwards_first=False):
    """All of a microbatch, then the next."""
    order = [[f"{rank}{kind}{m}" for m in range(microbatches) for kind in "FB"] for rank in range(ranks)]
    return Schedule.of_texts(NAME, linear(ranks), microbatches, order)


def lazy(*, ranks, microbatches):
    order = [[f"{rank}F{m}" for m in range(microbatches - 1)] for rank in range(ranks)]
    return Schedule.of_texts(NAME, linear(ranks), microbatches, order)


def failing(*, ranks, microbatches):
    return 1 / 0


def odd(*, ranks, microbatches):
    return [["F0"]]


def anything(*, ranks, microbatches, **options):
    return build(ranks=ranks + options["more"], microbatches=microbatches)
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's file that imports its neighbour."""
    (tmp_path / "mine.py").write_text(_OWN)
    (tmp_path / "helper.py").write_text('NAME = "one-at-a-time"')
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module in ("helper", "mine", "pipesim_user_mine"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return f"{tmp_path}/mine.py"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_builds_by_name(name: str) -> None:
    schedule = build(name, ranks=4, microbatches=8)
    assert (schedule.name, schedule.ranks, schedule.microbatches) == (name, 4, 8)


def test_names_may_be_written_as_in_papers_and_code() -> None:
    assert build("1F1B", ranks=2, microbatches=3) == build("1f1b", ranks=2, microbatches=3)
    assert find("dualpipe_v").name == "dualpipe-v"


def _message(*args: Any, **options: Any) -> str:
    with pytest.raises(PipesimError) as caught:
        build(*args, **options)
    return str(caught.value)


def test_an_unknown_name_gets_close_matches() -> None:
    message = _message("interleave", ranks=4, microbatches=8)
    assert message.startswith("no schedule 'interleave'; did you mean interleaved")
    assert message.endswith("your own is my_module.py:build, or a .json, .csv, .txt file")


def test_an_option_that_a_family_does_not_have() -> None:
    assert _message("1f1b", ranks=4, microbatches=8, virtual=2) == "schedule 1f1b has no option 'virtual'; it has none"
    assert _message("chimera", ranks=4, microbatches=8, virtual=2) == (
        "schedule chimera has no option 'virtual'; it has pipes"
    )


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"ranks": 0, "microbatches": 8}, "1f1b cannot have ranks 0: it needs at least 1; try ranks 1 or more"),
        ({"ranks": 4, "microbatches": -1}, "1f1b cannot have microbatches -1: it needs at least 1"),
        ({"ranks": 4, "microbatches": 2.5}, "1f1b cannot have microbatches 2.5: it is a count"),
        ({"ranks": True, "microbatches": 8}, "1f1b cannot have ranks True: it is a count"),
        ({"ranks": 4}, "schedule 1f1b needs a number of microbatches, e.g. microbatches=4"),
        ({"ranks": 4096, "microbatches": 1_000_000}, "1f1b cannot have 8192000000 actions: more than 50000000"),
    ],
)
def test_counts_that_cannot_be(counts: dict[str, Any], message: str) -> None:
    assert _message("1f1b", **counts).startswith(message)


def test_options_are_counts_too() -> None:
    assert _message("interleaved", ranks=4, microbatches=8, virtual=0).startswith(
        "interleaved cannot have virtual 0: it needs at least 1"
    )


def test_a_users_function(own: str) -> None:
    schedule = build(f"{own}:build", ranks=2, microbatches=2, backwards_first=True)
    assert (schedule.name, str(schedule)) == ("one-at-a-time", "F0 B0 F1 B1\nF0 B0 F1 B1")
    assert find(f"{own}:build").options == {"backwards_first": False}
    assert build(f"{own}:anything", ranks=2, microbatches=2, more=1).ranks == 3


def test_a_users_function_of_a_module(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(own).parent)
    assert build("mine:build", ranks=2, microbatches=2).name == "one-at-a-time"


def test_a_users_schedule_is_checked_before_it_is_used(own: str) -> None:
    with pytest.raises(BrokenSchedule, match="microbatch 2 passes 0 of the 1 replicas"):
        build(f"{own}:lazy", ranks=2, microbatches=3)


def test_a_users_function_that_does_not_work(own: str) -> None:
    assert _message(f"{own}:failing", ranks=2, microbatches=2).endswith("failed: ZeroDivisionError: division by zero")
    assert _message(f"{own}:odd", ranks=2, microbatches=2).endswith("gave a list, not a pipesim Schedule")
    assert "has no function 'biuld'; it has build" in _message(f"{own}:biuld", ranks=2, microbatches=2)
    assert "no/such.py:build: cannot be loaded: FileNotFoundError" in _message(
        "no/such.py:build", ranks=2, microbatches=2
    )
    assert "expected a file or module and a function" in _message("mine.py:", ranks=2, microbatches=2)
    assert "cannot be loaded: ModuleNotFoundError" in _message("no_such_module:build", ranks=2, microbatches=2)


def test_a_plug_in(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(own).parent))
    group = lookup.ENTRY_POINTS
    points = [EntryPoint("theirs", "mine:build", group), EntryPoint("bad", "nowhere:x", group)]
    monkeypatch.setattr(lookup, "entry_points", lambda group: points if group == "pipesim.schedules" else [])
    assert build("theirs", ranks=2, microbatches=1).name == "one-at-a-time"
    assert "bad: its plug-in cannot be loaded: ModuleNotFoundError" in _message("bad", ranks=2, microbatches=1)
    assert "theirs" in _message("nothing-like-it", ranks=2, microbatches=1)
    assert list(lookup.families()) == [*FAMILIES, "theirs"]


def test_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "a.json")
    write_schedule(one_f_one_b(ranks=2, microbatches=3), path)
    assert build(path) == build(path, ranks=2, microbatches=3) == one_f_one_b(ranks=2, microbatches=3)
    assert _message(path, ranks=3) == (
        f"{path} cannot have 3 ranks: a file has what it has; try 2 ranks, or leave it out"
    )
    assert _message(path, virtual=2) == f"schedule {path} has no option 'virtual'; it has none"
    assert "No such file" in _message(str(tmp_path / "b.json"))


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("F0 F1 B0 B1\nF0 B0 F1\n")
    with pytest.raises(BrokenSchedule, match="1B1 is missing"):
        build(str(tmp_path / "a.txt"))


def test_a_number_of_stages_that_is_none_is_the_familys_own() -> None:
    """`--option virtual=none` was a TypeError."""
    sizes = {"ranks": 2, "microbatches": 4}
    assert build("interleaved", **sizes, virtual=None) == build("interleaved", **sizes)
