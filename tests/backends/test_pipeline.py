"""What stages may be and do: trees of tensors, tied weights, changing shapes, evaluation, mixed precision."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipesim.backends.batch import BatchTooSmall, WrongWeights, cut_batch
from pipesim.backends.execute.failures import ActionFailed
from pipesim.backends.execute.message_form import MessageChanged
from pipesim.backends.pipeline import Pipeline, PipelineOptions
from pipesim.backends.stage import SplitRefused, Stage, StageOptions
from pipesim.ir.lower import lower
from pipesim.ir.schedule import Schedule
from pipesim.schedules.lookup import build
from tests.backends.group import run_group
from tests.backends.models import VOCABULARY, build_batch, build_stages, cross_entropy, gradients, run_alone
from tests.backends.modules import Function


def split_1f1b(ranks: int, microbatches: int) -> Schedule:
    """1F1B with every backward in halves, one after the other."""
    plain = build("1f1b", ranks=ranks, microbatches=microbatches)
    orders = [
        [text for one in order for text in ([one] if "F" in one else [one.replace("B", "I"), one.replace("B", "W")])]
        for order in plain.orders
    ]
    return Schedule.of_texts("1f1b, split", plain.placement, microbatches, orders)


def assert_same_gradients(pipeline: Pipeline, alone: list[nn.Module]) -> None:
    expected = gradients(alone)
    for stage, found in zip(pipeline.modules, gradients(list(pipeline.modules.values())), strict=True):
        assert found.keys() == expected[stage].keys()
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, expected[stage][name], rtol=1e-9, atol=1e-12, msg=f"{stage} {name}")


def summed(value: float) -> float:
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return float(total)


class First(nn.Module):
    """Gives a dict: two tensors with a gradient, one of integers, one that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 8)
        self.unused = nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> dict[str, Any]:
        x = self.table(tokens)
        return {"x": x, "deep": (x.sin(), tokens), "spare": self.unused(x), "flag": 3}


class Middle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU(inplace=True)  # first thing done to an input: autograd forbids it on a leaf
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, deep: tuple[Tensor, Tensor], spare: Tensor, flag: int) -> tuple[Tensor, Tensor]:
        assert flag == 3
        return self.linear(self.act(x)) + deep[0], deep[1]


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.head(x * (tokens[..., None] > 3))


def tree_stages() -> list[nn.Module]:
    torch.manual_seed(5)
    return [First().double(), Middle().double(), Last().double()]


def trees() -> None:
    """Dicts and tuples, integers, values that are not tensors, gradients that are None."""
    for schedule in (build("1f1b", ranks=3, microbatches=4), split_1f1b(3, 4)):
        pipeline = Pipeline(lower(schedule), tree_stages(), loss_fn=cross_entropy)
        alone = tree_stages()
        batch = build_batch(4)
        for _ in range(2):
            loss = pipeline.step(batch).loss
        expected = 0.0
        for _ in range(2):
            expected = 0.0
            for microbatch, (tokens,) in enumerate(batch.inputs):
                made = alone[0](tokens)
                made["x"] = made["x"] * 1  # as the pipeline's copy: Middle writes into it
                passed = alone[1](**made)
                one = cross_entropy(alone[2](*passed), batch.targets[microbatch][0]) * batch.weights[microbatch][0]
                one.backward()
                expected += float(one.detach())
        assert summed(loss) == pytest.approx(expected, rel=1e-9)
        assert_same_gradients(pipeline, alone)
        assert 0 not in pipeline.modules or pipeline.modules[0].unused.weight.grad is None


def tied() -> None:
    """Embedding and head are one weight on two ranks: its gradients are summed, both copies stay equal."""
    for name, more in (("1f1b", {}), ("interleaved", {"virtual": 2}), ("dualpipe-v", {})):
        schedule = build(name, ranks=3, microbatches=6, **more)
        length = schedule.placement.length
        options = PipelineOptions(optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1))
        pipeline = Pipeline(lower(schedule), build_stages(length, tied=True), loss_fn=cross_entropy, options=options)
        alone = build_stages(length, tied=True)
        optimizer = torch.optim.SGD({id(p): p for s in alone for p in s.parameters()}.values(), lr=0.1)
        for step in range(2):
            pipeline.step(build_batch(6))
            run_alone(alone, build_batch(6), step=step)
            optimizer.step()
            optimizer.zero_grad()
        for stage, module in pipeline.modules.items():
            for one, other in zip(module.parameters(), alone[stage].parameters(), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def evaluate_between() -> None:
    """Evaluation before, between and after training changes nothing of it, and gives the losses."""
    pipeline = Pipeline(
        lower(build("1f1b", ranks=3, microbatches=4)), build_stages(3, dropout=0.3), loss_fn=cross_entropy
    )
    alone = build_stages(3, dropout=0.3)
    batch = build_batch(4)
    for _ in range(2):
        outputs = pipeline.evaluate(batch).outputs
        for stage in alone:
            stage.eval()
        expected = [
            cross_entropy(alone[2](alone[1](alone[0](x))), y)
            for (x,), (y,) in zip(batch.inputs, batch.targets, strict=True)
        ]
        for stage in alone:
            stage.train()
        for (microbatch, _), loss in outputs.items():
            torch.testing.assert_close(loss, expected[microbatch].detach(), rtol=1e-9, atol=0)
        assert len(outputs) == (4 if 2 in pipeline.modules else 0)
        pipeline.step(batch)
        run_alone(alone, batch, step=pipeline.stages[next(iter(pipeline.stages))].step - 1)
    assert_same_gradients(pipeline, alone)


def shapes() -> None:
    """A batch of another size: refused by name, or taken where it is said that shapes change."""
    program = lower(build("1f1b", ranks=3, microbatches=4))
    alone = build_stages(3)
    pipeline = Pipeline(program, build_stages(3), loss_fn=cross_entropy, options=PipelineOptions(dynamic_shapes=True))
    for samples in (4, 9, 6):
        tokens = torch.randint(VOCABULARY, (samples, samples), generator=torch.Generator().manual_seed(1))
        batch = cut_batch(tokens, tokens, microbatches=4)
        pipeline.step(batch)
        run_alone(alone, batch)
    assert_same_gradients(pipeline, alone)


def wrong_shape() -> str:
    program = lower(build("1f1b", ranks=3, microbatches=2))
    pipeline = Pipeline(program, build_stages(3), loss_fn=cross_entropy)
    tokens = torch.zeros(4, 3, dtype=torch.int64)
    pipeline.step(cut_batch(tokens, tokens, microbatches=2))
    if dist.get_rank():
        return ""
    with pytest.raises(MessageChanged) as error:
        pipeline.step(cut_batch(tokens[:, :2], tokens[:, :2], microbatches=2))
    return str(error.value)


def weights() -> None:
    """Given weights, and a count of valid targets."""
    program = lower(split_1f1b(3, 4))
    for weigh in ([1, 0, 2, 5], lambda target: float((target > 4).sum())):
        tokens = torch.randint(VOCABULARY, (6, 5), generator=torch.Generator().manual_seed(2))
        batch = cut_batch(tokens, tokens, microbatches=4, weights=weigh)
        assert sum(map(sum, batch.weights)) == pytest.approx(1)
        pipeline, alone = Pipeline(program, build_stages(3), loss_fn=cross_entropy), build_stages(3)
        assert summed(pipeline.step(batch).loss) == pytest.approx(run_alone(alone, batch), rel=1e-9)
        assert_same_gradients(pipeline, alone)


def mixed_precision() -> None:
    """Stages run under autocast; weights and their gradients stay float32."""
    options = PipelineOptions(stage=StageOptions(context=lambda: torch.autocast("cpu", torch.bfloat16)))
    stages = [stage.float() for stage in build_stages(3)]
    pipeline = Pipeline(lower(split_1f1b(3, 4)), stages, loss_fn=cross_entropy, options=options)
    loss = summed(pipeline.step(build_batch(4)).loss)
    assert loss == pytest.approx(run_alone(build_stages(3), build_batch(4)), rel=0.05)
    for module in pipeline.modules.values():
        assert {weight.grad.dtype for weight in module.parameters() if weight.grad is not None} == {torch.float32}


def raises_in_a_stage() -> str:
    def broken(self: Any, x: Tensor) -> Tensor:
        if dist.get_rank() == 1:
            raise ZeroDivisionError("three is not four")
        return self.a(x)

    stages: list[nn.Module] = [Function(broken, a=nn.Linear(4, 4)) for _ in range(3)]
    pipeline = Pipeline(lower(build("1f1b", ranks=3, microbatches=2)), stages, loss_fn=lambda x, y: x.sum())
    data = torch.zeros(2, 4)
    try:
        pipeline.step(cut_batch(data, data, microbatches=2))
    except ActionFailed as error:
        return str(error)
    except Exception as error:
        return type(error).__name__
    return ""


CASES = (trees, tied, evaluate_between, shapes, weights, mixed_precision)


def everything() -> list[str]:
    """Names of the cases that hold, in one group of processes: to start one takes seconds."""
    held = []
    for case in CASES:
        try:
            case()
        except BaseException as error:
            raise AssertionError(f"in {case.__name__}: {error}") from error
        held.append(case.__name__)
    return held


@pytest.mark.slow
def test_stages_of_many_kinds() -> None:
    assert run_group(3, everything) == [[case.__name__ for case in CASES]] * 3


def test_a_message_of_another_shape_is_refused_by_name() -> None:
    found = run_group(3, wrong_shape, leave_together=False)
    assert found[0].startswith("0SEND_F0: tensor 0 is float64[2, 2, 8], but it was float64[2, 3, 8] in the first step")


def test_an_error_in_a_stage_names_rank_action_and_cause() -> None:
    found = run_group(3, raises_in_a_stage, leave_together=False)
    assert found[1] == "rank 1 failed at 1F0: ZeroDivisionError: three is not four"


def test_a_stage_that_cannot_be_split_runs_whole_and_says_so_once() -> None:
    """A hook on a tensor doubles its gradient: both halves of a split backward would do it."""

    def doubled(self: Any, x: Tensor) -> Tensor:
        y = self.a(x)
        y.register_hook(lambda gradient: gradient * 2)
        return y

    stage = Stage(Function(doubled, a=nn.Linear(4, 3)).double(), 1, 3)
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for microbatch in range(3):
            stage.forward((microbatch, 0), x, split=True)
            stage.input_gradient((microbatch, 0), [torch.ones(2, 3, dtype=torch.float64)])
            stage.weight_gradient((microbatch, 0))
    assert [one.category for one in said] == [SplitRefused]
    assert re.search(
        r"stage 1: its backward cannot be split \(gradient 1 of shape \(3, 4\) differs", str(said[0].message)
    )
    weight, _ = stage.parameters()
    torch.testing.assert_close(weight.grad, 3 * 2 * x.detach().sum(0).expand(3, 4))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"microbatches": 5}, BatchTooSmall, "a batch of 4 cannot be cut into 5 parts: give at least 5"),
        ({"microbatches": 2, "slices": 4}, BatchTooSmall, "a sequence of 3 cannot be cut into 4 parts"),
        ({"microbatches": 2, "weights": [1.0]}, WrongWeights, "1 weights (1.0,) for 2 microbatches"),
        ({"microbatches": 2, "weights": [0, 0]}, WrongWeights, "none below 0, not all 0"),
    ],
)
def test_a_batch_that_cannot_be_cut_is_refused(arguments: dict[str, Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        cut_batch(torch.zeros(4, 3), torch.zeros(4, 3), **arguments)
