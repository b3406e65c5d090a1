"""Streams of requests, from chance and from files; figures; overload; pools; load curves; plans."""

import time
from pathlib import Path

import numpy as np
import pytest

from pipesim.errors import PipesimError
from pipesim.files import CannotRead
from pipesim.serving.load import load_curve
from pipesim.serving.plan import BadObjective, NothingServes, Objective, parse_objective, plan_serving
from pipesim.serving.pools import pools_of, serve_apart
from pipesim.serving.requests import BadRequests, Lengths, Requests, at_once, poisson, read_requests
from pipesim.serving.serve import PromptTooLong, serve
from tests.serving.flat import deployment


def stream(rate: float, duration: float = 60.0, prompt: int = 256, output: int = 64) -> Requests:
    return poisson(rate=rate, duration_s=duration, prompt=Lengths(prompt, 0.5), output=Lengths(output, 0.5), most=4096)


def test_a_stream_has_the_rate_and_lengths_asked_for_and_repeats() -> None:
    found = stream(50.0, 200.0)
    assert len(found) == pytest.approx(10_000, rel=0.05)
    assert found.prompt.mean() == pytest.approx(256, rel=0.03)
    assert found.prompt.std() == pytest.approx(128, rel=0.06)
    np.testing.assert_array_equal(found.arrival_s, stream(50.0, 200.0).arrival_s)


def test_a_stream_in_which_chance_puts_no_request_has_one() -> None:
    """Its figures were an argmax of nothing."""
    assert len(stream(1e-300, 1.0)) == 1


def test_a_trace_is_read_sorted_and_from_zero(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n12.5,100,20\n10,30,5\n")
    found = read_requests(file)
    assert found.arrival_s.tolist() == [0.0, 2.5]
    assert found.prompt.tolist() == [30, 100]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("arrival_s,prompt_tokens\n1,2\n", "no column 'output_tokens'"),
        ("arrival_s,prompt_tokens,output_tokens\n", "has no request"),
        ("arrival_s,prompt_tokens,output_tokens\n1,2,x\n", "line 2: not three numbers"),
        ("arrival_s,prompt_tokens,output_tokens\n1,0,3\n", "line 2: arrival 1, prompt 0, output 3"),
    ],
)
def test_a_bad_trace_says_where(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(BadRequests, match=message):
        read_requests(file)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotRead):
        read_requests(tmp_path / "none.csv")


def test_a_light_load_is_served_at_the_speed_of_one_request() -> None:
    made = deployment()
    alone = serve(made, at_once(count=1, prompt=256, output=64)).served
    light = serve(made, stream(0.5)).served
    assert light.overload is None
    assert light.tpot is not None
    assert alone.tpot is not None
    assert light.tpot.p50 == pytest.approx(alone.tpot.p50, rel=0.1)


def test_too_many_requests_are_reported_as_such_and_not_as_a_latency() -> None:
    found = serve(deployment("llama-3-70b", tp=8), stream(60.0)).served
    assert found.overload is not None
    assert found.overload.served_per_s < 0.8 * found.overload.offered_per_s
    assert (found.ttft, found.tpot, found.latency) == (None, None, None)
    assert found.to_json()["overloaded"] is True


def test_replicas_share_the_load() -> None:
    one, two = (serve(deployment(replicas=count), stream(20.0)).served for count in (1, 2))
    assert one.tpot is not None
    assert two.tpot is not None
    assert two.tpot.p50 < one.tpot.p50
    assert two.requests == one.requests


def test_more_groups_fill_the_pipeline() -> None:
    made = [deployment("llama-3-70b", tp=2, pp=4, groups=groups) for groups in (1, 4)]
    one, four = (serve(each, at_once(count=64, prompt=512, output=64)).served for each in made)
    assert one.bubble > 0.7
    assert four.bubble < 0.3
    assert four.output_tokens_per_s > 1.5 * one.output_tokens_per_s


def test_a_request_beyond_the_context_or_the_cache_is_refused_by_its_number() -> None:
    requests = Requests(np.zeros(2), np.array([10, 9000]), np.array([10, 10]))
    with pytest.raises(PromptTooLong, match=r"request 1 has 9010 tokens .* the context of llama-3-8b holds 8192"):
        serve(deployment(), requests)
    with pytest.raises(PromptTooLong, match="the whole cache of a replica holds"):
        serve(deployment("llama-2-70b", tp=2, context=1 << 30), at_once(count=1, prompt=10**6, output=1))


def test_pools_conserve_requests_and_pay_for_the_transfer() -> None:
    half = deployment("llama-3-8b", tp=2)
    pools = pools_of(half, half)
    requests = stream(5.0)
    found = serve_apart(pools, requests).served
    assert found.requests == len(requests)
    assert (found.each.done_s >= found.each.first_s).all()
    assert pools.decode.devices(0) == (2, 3)
    assert pools.transfer_seconds(4096, source=0, target=0) > pools.transfer_seconds(64, source=0, target=0) > 0
    together = serve(deployment("llama-3-8b", tp=4), requests).served
    assert found.tpot is not None
    assert together.ttft is not None
    alone = found.each.output == 1
    np.testing.assert_array_equal(found.each.done_s[alone], found.each.first_s[alone])


def test_pools_must_fit_side_by_side() -> None:
    with pytest.raises(PipesimError, match="8 GPUs for prompts and 2 for decoding are 10, but dgx-a100:1 has 8"):
        pools_of(deployment(tp=8), deployment(tp=2))


def test_latency_grows_with_load_until_there_is_none() -> None:
    points = load_curve(
        deployment("llama-3-70b", tp=8), [40.0, 1.0, 4.0], duration_s=40, prompt=Lengths(256), output=Lengths(64)
    )
    assert [point.rate for point in points] == [1.0, 4.0, 40.0]
    low, high, over = (point.served for point in points)
    assert low.ttft is not None
    assert high.ttft is not None
    assert low.ttft.p99 < high.ttft.p99
    assert over.overload is not None


def test_objectives_are_read() -> None:
    assert parse_objective("ttft=500ms, tpot=50ms") == Objective(0.5, 0.05)
    assert parse_objective("tpot=20ms").ttft_s == float("inf")
    with pytest.raises(BadObjective, match="'latency=1s' is no limit"):
        parse_objective("latency=1s")


def test_a_plan_ranks_splits_by_requests_within_the_limits() -> None:
    base = deployment("llama-3-8b", "dgx-a100:1x2")
    found = plan_serving(base, Objective(0.5, 0.03), prompt=Lengths(256), output=Lengths(32))
    rates = [choice.goodput_per_s for choice in found.choices]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0
    best = found.choices[0].served
    assert best is not None
    assert best.tpot is not None
    assert best.tpot.p50 <= 0.03
    assert {(c.deployment.tp, c.deployment.pp, c.deployment.replicas) for c in found.choices} == {
        (2, 1, 1), (1, 2, 1), (1, 1, 2)
    }  # fmt: skip


def test_a_plan_without_a_way_says_why() -> None:
    with pytest.raises(NothingServes, match=r"no split of dgx-a100:1x1 serves llama-3-70b: .* does not fit"):
        plan_serving(deployment("llama-3-70b", "dgx-a100:1x1"), Objective(), prompt=Lengths(64), output=Lengths(8))


@pytest.mark.slow
def test_an_hour_at_20_requests_a_second_takes_less_than_a_minute() -> None:
    """On one core; progress is told on the way."""
    made = deployment("llama-3-8b", "dgx-h100:1x4", tp=2, pp=2, batch=1024)
    requests = poisson(rate=20, duration_s=3600, prompt=Lengths(512, 1.0), output=Lengths(200, 0.8), most=8192)
    told: list[int] = []
    start = time.process_time()
    found = serve(made, requests, progress=lambda done, now: told.append(done)).served
    assert time.process_time() - start < 60
    assert found.requests == len(requests) > 70_000
    assert len(told) > 100
