"""Prompts in groups, and the choice of tokens."""

from __future__ import annotations

import pytest
import torch

from pipesim.backends.generate.prompts import BadPrompt, check_prompts, make_groups
from pipesim.backends.generate.sampling import BadSampling, Sampling
from pipesim.backends.model.config import tiny_decoder


def test_prompts_of_like_length_are_filled_up_on_the_left() -> None:
    first, second = make_groups([(0, [1, 2, 3]), (1, [4]), (2, [5, 6])], 2)
    assert (first.numbers, second.numbers) == ((1, 2), (0,))
    assert first.tokens.tolist() == [[0, 4], [5, 6]]
    assert first.positions(0, torch.device("cpu")).tolist() == [[0, 0], [0, 1]]
    assert first.positions(2, torch.device("cpu")).tolist() == [[2], [3]]
    assert second.mask(0, torch.device("cpu")) is None


def test_nobody_looks_at_what_fills_up_but_it_at_itself() -> None:
    (group,) = make_groups([(0, [1, 2, 3]), (1, [4])], 1)
    short = group.numbers.index(1)
    prefill = group.mask(0, torch.device("cpu"))
    assert prefill is not None
    assert prefill[short, 0].tolist() == [[True, False, False], [False, True, False], [False, False, True]]
    later = group.mask(2, torch.device("cpu"))
    assert later is not None
    assert later[short, 0].tolist() == [[False, False, True, True, True]]


def test_there_may_be_more_groups_than_prompts() -> None:
    assert [group.numbers for group in make_groups([(0, [1])], 2)] == [(0,), ()]


LOGITS = torch.tensor([[0.0, 3.0, 2.0, -1.0]] * 400)


def drawn(sampling: Sampling) -> list[int]:
    return sampling.choose(LOGITS, range(400), 0).tolist()


def test_the_likeliest_and_draws_among_the_likeliest() -> None:
    assert set(drawn(Sampling())) == {1}
    assert set(drawn(Sampling(1.0, top_k=2))) == {1, 2}
    assert set(drawn(Sampling(1.0, top_p=0.5))) == {1}
    assert set(drawn(Sampling(5.0))) == {0, 1, 2, 3}
    share = drawn(Sampling(1.0)).count(1) / 400
    assert share == pytest.approx(float(LOGITS[0].softmax(-1)[1]), abs=0.08)


def test_a_draw_depends_on_prompt_and_place_only() -> None:
    sampling = Sampling(1.0, seed=7)
    assert sampling.choose(LOGITS[:3], [4, 9, 2], 5).tolist()[1:] == sampling.choose(LOGITS[:2], [9, 2], 5).tolist()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"temperature": -1.0}, "temperature=-1.0; 0"),
        ({"top_k": -2}, "top_k=-2"),
        ({"top_p": 0.0}, "top_p=0.0; above 0 and up to 1 works"),
    ],
)
def test_numbers_that_nothing_can_be_drawn_with(numbers: dict[str, float], message: str) -> None:
    with pytest.raises(BadSampling, match=message):
        Sampling(**numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "new", "message"),
    [
        ([], 4, "prompt 0: it is empty"),
        ([1, 256], 4, "prompt 0: token 256 is none of tiny-llama; 0 to 255 work"),
        ([1] * 30, 4, "30 tokens and 4 new ones exceed the context of 32 of tiny-llama; at most 2 new ones fit"),
        ([1] * 40, 4, "at most 28 tokens work"),
    ],
)
def test_prompts_that_cannot_be_continued(prompt: list[int], new: int, message: str) -> None:
    with pytest.raises(BadPrompt, match=message):
        check_prompts(tiny_decoder(max_position_embeddings=32), [prompt], new)
