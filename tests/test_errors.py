"""Errors survive what moves them about: pickle between processes, SimPy between processes of a simulation."""

import copy
import pickle
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
import simpy

from pipesim.errors import PipesimError


@dataclass(eq=False)
class TooFewRanks(PipesimError):
    ranks: int
    at_least: int = 1

    def __str__(self) -> str:
        return f"ranks={self.ranks}: needs at least {self.at_least}"


@pytest.mark.parametrize("error", [TooFewRanks(0, 2), TooFewRanks(ranks=0, at_least=2), TooFewRanks(0)])
def test_pickle_and_copy_give_the_same_error(error: TooFewRanks) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is TooFewRanks
        assert (again.ranks, again.at_least, str(again)) == (error.ranks, error.at_least, str(error))


def test_notes_survive_pickle() -> None:
    error = TooFewRanks(0)
    error.add_note("while reading layout.yaml")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while reading layout.yaml"]


def test_simpy_rebuilds_it_from_its_args() -> None:
    env = simpy.Environment()

    def fails() -> Generator[simpy.Event, None, None]:
        yield env.timeout(1)
        raise TooFewRanks(ranks=0, at_least=2)

    def waits() -> Generator[simpy.Event, Any, None]:
        yield env.process(fails())

    with pytest.raises(TooFewRanks, match="ranks=0: needs at least 2"):
        env.run(env.process(waits()))


def test_two_equal_errors_stay_two() -> None:
    first, second = TooFewRanks(0), TooFewRanks(0)
    assert first != second
    assert len({first, second}) == 2


def test_it_is_an_ordinary_exception() -> None:
    with pytest.raises(PipesimError) as caught:
        raise TooFewRanks(ranks=0)
    assert caught.value.__traceback__ is not None
    assert repr(caught.value) == "TooFewRanks(ranks=0, at_least=1)"
