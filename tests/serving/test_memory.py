"""What fits: weights, cache, the largest batch; and what is said when nothing does."""

import pytest

from pipesim.costs.layouts.layout import BadLayout
from pipesim.costs.models.params import parameters
from pipesim.serving.deployment import BadDeployment
from pipesim.serving.formats import weight_format
from pipesim.serving.memory import ModelTooLarge, blocks_of, largest_batch, memory_of
from tests.serving.flat import deployment


@pytest.mark.parametrize(("tp", "pp"), [(8, 1), (4, 2), (2, 4), (1, 4)])
def test_stages_hold_all_weights_together(tp: int, pp: int) -> None:
    made = deployment("llama-3-70b", tp=tp, pp=pp)
    held = sum(stage.weights for stage in memory_of(made)) * tp
    assert held == pytest.approx(2 * parameters(made.model).total, rel=0.002)  # norms are on every rank


def test_4_bit_weights_leave_embedding_and_output_layer_in_16() -> None:
    made = deployment("llama-3-8b", weights=weight_format("int4"))
    model = made.model
    tables = 2 * model.vocab * model.hidden
    others = parameters(model).total - tables
    assert memory_of(made)[0].weights == pytest.approx(2 * tables + (0.5 + 2.5 / 128) * others, rel=0.001)


def test_the_largest_batch_fills_the_cache() -> None:
    made = deployment("llama-3-70b", tp=4, pp=2)
    batch = largest_batch(made, 640)
    assert batch == blocks_of(made) // 40
    fullest = min(memory_of(made), key=lambda stage: stage.cache)
    assert batch * 640 * fullest.token <= fullest.cache < (batch + 1) * 640 * fullest.token + 16 * fullest.token


def test_a_model_that_does_not_fit_is_refused_with_what_would_do() -> None:
    with pytest.raises(ModelTooLarge) as caught:
        memory_of(deployment("llama-3-70b", replicas=8))
    assert "134" in str(caught.value)
    assert "has 80.0 GiB; about 2 GPUs a replica hold it" in str(caught.value)
    assert "--weights fp8 or int4" in str(caught.value)


def test_more_gpus_than_there_are_is_refused() -> None:
    with pytest.raises(BadLayout, match="16 GPUs, but dgx-a100:1 has 8; up to 1 replicas fit"):
        deployment("llama-3-70b", tp=8, replicas=2)


def test_a_batch_needs_as_large_a_step() -> None:
    with pytest.raises(BadDeployment, match="a batch of 512 needs a step of as many tokens, not 256; --max-tokens 512"):
        deployment(batch=512, tokens=256)
