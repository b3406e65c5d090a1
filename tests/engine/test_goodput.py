"""Goodput: agrees with Daly's formula where that holds, conserves time, and says so when a job never gets anywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.cli import main
from pipesim.engine.goodput import (
    Reliability,
    TooManyFailures,
    best_interval_s,
    expected_goodput,
    simulate_goodput,
    young_daly_s,
)

DAY = 86400.0


def job(**given: float) -> Reliability:
    values: dict[str, float] = {"mtbf_s": 4 * 3600 * 1000, "checkpoint_every_s": 900, "checkpoint_stall_s": 60,
                                "checkpoint_write_s": 60, "detect_s": 30, "restart_s": 300} | given  # fmt: skip
    return Reliability(gpus=1000, **values)


@pytest.mark.parametrize("every", [120, 900, 3600])
def test_simulation_agrees_with_dalys_formula(every: float) -> None:
    """A long run with checkpoints that stall until they are complete."""
    one = job(checkpoint_every_s=every)
    found = simulate_goodput(one, duration_s=400 * DAY, samples=64)
    assert found.goodput == pytest.approx(expected_goodput(one), abs=0.003)


def test_the_best_interval_is_near_young_and_daly_where_failures_are_rare() -> None:
    """√(2δM) - δ to first order in δ/M (Daly 2006, equation 20)."""
    one = job(mtbf_s=1000 * 100 * 3600)
    assert best_interval_s(one) == pytest.approx(young_daly_s(one) - one.checkpoint_stall_s, rel=0.02)


def test_no_other_interval_is_better_than_the_best() -> None:
    best = best_interval_s(job())
    top = expected_goodput(job(checkpoint_every_s=best))
    assert all(expected_goodput(job(checkpoint_every_s=best * factor)) < top for factor in (0.5, 0.9, 1.1, 2))


@given(
    between=st.floats(600, 1e6), every=st.floats(10, 1e4), stall=st.floats(1, 100), late=st.floats(0, 500),
    detect=st.floats(0, 1e3), restart=st.floats(0, 1e3),
)  # fmt: skip
def test_time_is_conserved(
    between: float, every: float, stall: float, late: float, detect: float, restart: float
) -> None:
    one = Reliability(gpus=1, mtbf_s=between, checkpoint_every_s=every, checkpoint_stall_s=stall,
                      checkpoint_write_s=stall + late, detect_s=detect, restart_s=restart)  # fmt: skip
    found = simulate_goodput(one, duration_s=DAY, samples=8)
    assert found.goodput * DAY + sum(found.lost_s.values()) == pytest.approx(DAY, rel=1e-9)
    assert 0 <= found.goodput <= 1


def test_a_checkpoint_that_completes_late_loses_more_work() -> None:
    prompt, late = (simulate_goodput(job(checkpoint_write_s=write), duration_s=100 * DAY) for write in (60, 600))
    assert late.lost_s["lost work"] > prompt.lost_s["lost work"]
    assert late.lost_s["checkpoints"] == pytest.approx(prompt.lost_s["checkpoints"], rel=0.02)


def test_llama_3_had_more_than_ninety_percent_effective_training_time() -> None:
    """2407.21783, section 3.3.4: 16,384 H100s, 54 days, 419 unexpected interruptions, over 90 % effective time.

    That is a failure every 50,700 hours a GPU; detection, restart and interval are not published: usual ones here.
    """
    hours = 16384 * 54 * 24 / 419
    one = Reliability(gpus=16384, mtbf_s=hours * 3600, checkpoint_every_s=600, restart_s=480)
    found = simulate_goodput(one, duration_s=54 * DAY)
    assert found.failures == pytest.approx(419, rel=0.03)
    assert 0.90 < found.goodput < 0.97


def test_the_same_seed_gives_the_same_numbers() -> None:
    runs = [simulate_goodput(job(), duration_s=10 * DAY, seed=seed).runs.tolist() for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_a_job_that_fails_every_moment_is_refused() -> None:
    with pytest.raises(TooManyFailures, match="fewer GPUs, a longer --mtbf"):
        simulate_goodput(job(mtbf_s=1.0), duration_s=100 * DAY)


def test_two_runs_of_a_job_that_fails_every_second_are_refused_too() -> None:
    """Few failures in all, but 2.6 million steps one after the other: it took minutes."""
    with pytest.raises(TooManyFailures, match=r"2\.59e\+06 times in each of 2 runs"):
        simulate_goodput(job(mtbf_s=1000.0), duration_s=30 * DAY, samples=2)


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    args = ["goodput", "--gpus", "4096", "--mtbf", "50000h/gpu", "--checkpoint-every", "10min", "--json"]
    assert main([*args, "--out", f"{tmp_path}/g.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0.95 < found["goodput"] < 0.98
    assert found["between_failures_s"] == pytest.approx(50000 * 3600 / 4096)
    assert found["goodput"] + sum(found["lost_share"].values()) == pytest.approx(1)
    assert main(args[:-1]) == 0
    assert "best interval" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("50000h", "50000h/gpu, or 3h/job"),
        ("-5h/gpu", "must be more than 0"),
        ("0h/gpu", "more than 0"),
        ("x/gpu", "not a number"),
    ],
)
def test_wrong_rates_are_refused(capsys: pytest.CaptureFixture[str], given: str, says: str) -> None:
    assert main(["goodput", "--gpus", "8", "--mtbf", given]) == 2
    assert says in capsys.readouterr().err
