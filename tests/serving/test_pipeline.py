"""Groups of requests in a pipeline: the closed form, and agreement with the schedules' own engines."""

import numpy as np
import pytest

from pipesim.costs.plain import parse_costs
from pipesim.engine.choose import simulate
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build
from pipesim.serving.generation import generation_costs
from pipesim.serving.group import Rules
from pipesim.serving.requests import at_once
from pipesim.serving.serve import serve
from pipesim.serving.simulator import run
from tests.serving.flat import deployment, flat_instance

CASES = [
    (4, 4, 6, 0.0),
    (4, 2, 5, 0.1),
    (3, 5, 7, 0.2),
    (2, 1, 4, 0.3),
    (4, 4, 8, 0.25),
    (1, 3, 4, 0.5),
    (4, 9, 5, 2.0),
]


def rules(groups: int) -> Rules:
    return Rules(batch=groups, tokens=100, blocks=1000)


@pytest.mark.parametrize(("stages", "groups", "tokens", "hop"), CASES)
def test_a_token_of_each_group_takes_the_stages_or_the_round_trip(
    stages: int, groups: int, tokens: int, hop: float
) -> None:
    """Round-robin decoding: max(G · t, p · (t + C)) for a token of every group (one stage sends nothing)."""
    served = run(
        at_once(count=groups, prompt=1, output=tokens),
        flat_instance(stages=stages, groups=groups, hop=hop),
        rules(groups),
    )
    ends = np.array(served.steps.end_s)[np.array(served.steps.group) == 0]
    expected = max(groups * 1.0, stages * (1.0 + hop))
    assert np.diff(ends)[-1] == pytest.approx(expected)


@pytest.mark.parametrize(("stages", "groups", "tokens", "hop"), CASES)
def test_every_step_starts_when_the_decode_schedule_says(stages: int, groups: int, tokens: int, hop: float) -> None:
    if stages == 1:
        hop = 0.0  # a rank needs no message to itself
    schedule = build("decode", ranks=stages, microbatches=groups, slices=tokens)
    timeline = simulate(lower(schedule), parse_costs(f"F={tokens},C={hop}").of(schedule))
    served = run(
        at_once(count=groups, prompt=1, output=tokens),
        flat_instance(stages=stages, groups=groups, hop=hop),
        rules(groups),
        keep=1 << 20,
    )
    ours = np.sort(np.array(served.stages_s)[:, 0::2].ravel())
    theirs = np.sort(timeline.start[timeline.program.ops.kind == Kind.F])
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_prompts_alone_run_as_the_forward_only_schedule() -> None:
    schedule = build("forward-only", ranks=4, microbatches=6)
    timeline = simulate(lower(schedule), parse_costs("F=1,C=0.25").of(schedule))
    served = run(at_once(count=6, prompt=1, output=1), flat_instance(stages=4, groups=6, hop=0.25), rules(6))
    assert max(served.batcher.done_s) == pytest.approx(float(timeline.end.max()))


@pytest.mark.parametrize(("tp", "pp", "batch"), [(1, 4, 8), (4, 2, 32), (2, 2, 6)])
def test_a_static_batch_takes_as_long_in_the_engine_as_in_the_simulator(tp: int, pp: int, batch: int) -> None:
    made = deployment(tp=tp, pp=pp, batch=batch, tokens=64 * batch, chunked=False)
    served = serve(made, at_once(count=batch, prompt=64, output=16)).served
    schedule = build("decode", ranks=pp, microbatches=pp, slices=16)
    costs = generation_costs(made, batch=batch, prompt=64, output=16)
    timeline = simulate(lower(schedule), costs)
    assert float(timeline.end.max()) == pytest.approx(served.duration_s, rel=0.01)
