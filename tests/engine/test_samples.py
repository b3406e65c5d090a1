"""Jitter, stragglers and what they do to many sampled steps."""

from __future__ import annotations

import numpy as np
import pytest

from pipesim.costs.lengths import read_lengths, with_lengths
from pipesim.costs.network import Link, Network, Route
from pipesim.costs.plain import parse_costs
from pipesim.engine import choose, event
from pipesim.engine.durations import durations
from pipesim.engine.noise import BadNoise, Noise, Straggler, jittered, parse_noise, slowed
from pipesim.engine.samples import sample
from pipesim.ir.lower import lower
from pipesim.schedules.catalogue import FAMILIES
from pipesim.units import BadQuantity
from tests.engine.random_costs import random_costs

SCHEDULE = FAMILIES["1f1b"].build(ranks=4, microbatches=8)
PROGRAM = lower(SCHEDULE, reduce=True)
COSTS = parse_costs("F=10ms,B=20ms,C=1ms,reduce=5ms,optimizer=2ms").of(SCHEDULE)


def test_without_noise_every_step_is_the_same():
    found = sample(PROGRAM, [COSTS], Noise(), samples=3)
    expected = event.simulate(PROGRAM, COSTS)
    assert found.step_time_s.tolist() == [expected.step_time_s] * 3
    assert found.makespan_s.tolist() == [expected.makespan_s] * 3
    assert found.exact


def test_the_critical_path_adds_up_to_the_step_time():
    found = sample(PROGRAM, [COSTS], Noise(0.2), samples=50)
    np.testing.assert_allclose(found.critical_s.sum(axis=1), found.step_time_s)
    assert sum(found.critical_part.values()) == pytest.approx(1.0)


def test_same_seed_same_figures_whatever_the_threads_do():
    one, same = (sample(PROGRAM, [COSTS], Noise(0.1), samples=64, seed=7) for _ in range(2))
    other = sample(PROGRAM, [COSTS], Noise(0.1), samples=64, seed=8)
    assert one.to_json() == same.to_json() != other.to_json()
    fewer = sample(PROGRAM, [COSTS], Noise(0.1), samples=8, seed=7)
    assert fewer.step_time_s.tolist() == one.step_time_s[:8].tolist()


def test_jitter_has_the_spread_and_the_mean_it_says():
    timing, draw = durations(PROGRAM, COSTS), np.random.default_rng(1)
    compute = PROGRAM.is_compute
    factors = np.concatenate(
        [jittered(PROGRAM, timing, Noise(0.3), draw).seconds[compute] / timing.seconds[compute] for _ in range(200)]
    )
    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    assert factors.std() == pytest.approx(0.3, abs=0.01)
    assert factors.min() > 0


def test_jitter_makes_a_pipeline_slower_on_average():
    """A rank waits for the slowest of its neighbours, so what varies costs more than its mean."""
    still, shaken = (sample(PROGRAM, [COSTS], Noise(part), samples=200).step_time for part in (0.0, 0.2))
    assert still.p5 == still.mean == still.p95
    assert shaken.mean > still.mean
    assert shaken.p5 < shaken.p50 < shaken.p95


def test_a_straggling_rank_is_the_same_as_costs_that_are_higher_there():
    slower = parse_costs("F=10ms:10ms:15ms:10ms,B=20ms:20ms:30ms:20ms,C=1ms,reduce=5ms").of(SCHEDULE)
    plain = parse_costs("F=10ms,B=20ms,C=1ms,reduce=5ms").of(SCHEDULE)
    found = sample(PROGRAM, [plain], parse_noise(None, ["rank=2,x1.5"]), samples=1)
    assert found.step_time_s[0] == event.simulate(PROGRAM, slower).step_time_s
    assert max(found.critical_part, key=found.critical_part.__getitem__) == "rank 2"


def test_a_straggling_link_slows_its_own_messages_only():
    noise = Noise(stragglers=(Straggler(3.0, link=(1, 2)),))
    timing = slowed(PROGRAM, durations(PROGRAM, COSTS), noise)
    at = np.flatnonzero(timing.latency_s == 3e-3)
    ways = {(int(PROGRAM.rank[op]), int(PROGRAM.peer[op])) for op in at}
    assert ways == {(1, 2), (2, 1)}  # the sends of rank 1, and their receives on rank 2
    assert len(at) == 2 * SCHEDULE.microbatches


def test_any_engine_takes_changed_times(monkeypatch):
    timing = jittered(PROGRAM, durations(PROGRAM, COSTS), Noise(0.3), np.random.default_rng(3))
    monkeypatch.setattr(choose, "_SMALL", 0)
    made = [choose.simulate(PROGRAM, COSTS, engine, timing).end.tolist() for engine in ("event", "fast", "auto")]
    assert made[0] == made[1] == made[2]


def test_steps_in_which_links_are_shared_are_left_to_the_reference_engine():
    routes = {(0, 1): Route(0.1, 1.0, (0,)), (1, 0): Route(0.1, 1.0, (0,))}
    schedule = FAMILIES["1f1b"].build(ranks=2, microbatches=6)
    costs = random_costs(schedule, 1, network=Network(routes=routes, links=(Link("cable", 1.0),)))
    program = lower(schedule)
    found = sample(program, [costs], Noise(), samples=2)
    assert not found.exact
    assert found.step_time_s.tolist() == [event.simulate(program, costs).step_time_s] * 2


@pytest.mark.parametrize(
    ("jitter", "stragglers", "message"),
    [
        ("900%", [], "jitter 900%: at most 200% of a time, e.g. 5%"),
        (None, ["3"], "straggler '3': expected a rank or a link and a factor: rank=3,x1.2 or link=0-1,x4"),
        (None, ["rank=3,x0"], "straggler 'rank=3,x0': the factor must be more than 0, e.g. x1.2"),
    ],
)
def test_noise_that_cannot_be_read(jitter, stragglers, message):
    with pytest.raises(BadNoise) as found:
        parse_noise(jitter, stragglers)
    assert str(found.value) == message


def test_noise_that_the_program_has_no_place_for():
    timing = durations(PROGRAM, COSTS)
    with pytest.raises(BadNoise, match="straggler rank 4: there are ranks 0 to 3"):
        slowed(PROGRAM, timing, parse_noise(None, ["rank=4,x2"]))
    with pytest.raises(BadNoise, match="straggler link 0-3: nothing is sent there; links in use: 0-1, 1-0, 1-2"):
        slowed(PROGRAM, timing, parse_noise(None, ["link=0-3,x2"]))
    with pytest.raises(BadQuantity):
        parse_noise("much")
    with pytest.raises(BadNoise, match="0 samples: from 1 to 1000000"):
        sample(PROGRAM, [COSTS], Noise(), samples=0)


def test_steps_of_different_lengths_follow_each_other(tmp_path):
    (tmp_path / "tokens.txt").write_text("100 100 100 100 100 100 100 100\n200,100,100,100,100,100,100,100\n")
    lengths = read_lengths(tmp_path / "tokens.txt", microbatches=8)
    steps = [with_lengths(COSTS, row, usual=100) for row in lengths]
    found = sample(PROGRAM, steps, Noise(), samples=4).step_time_s
    plain = event.simulate(PROGRAM, COSTS).step_time_s
    assert found.tolist() == [plain, found[1], plain, found[1]]
    assert found[1] == event.simulate(PROGRAM, steps[1]).step_time_s > plain
