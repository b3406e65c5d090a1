"""What one GPU can show: timing by events, the split backward, memory against the simulation, a profile."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pipesim.backends.batch import cut_batch
from pipesim.backends.execute.timer import CudaTimer
from pipesim.backends.job.profile import profile, to_costs_file
from pipesim.backends.job.sources import TinySource
from pipesim.backends.job.tiny import Shape, next_token_loss, tiny_stage
from pipesim.backends.job.train import Task, train
from pipesim.backends.job.worker import Context
from pipesim.backends.measure.timelines import assemble, gather, timed_step
from pipesim.backends.pipeline import Pipeline, PipelineOptions
from pipesim.backends.split.saved import SavedTensors
from pipesim.backends.split.strategies import by_graph, graph_of, whole
from pipesim.ir.lower import lower
from pipesim.ir.schedule import Schedule
from pipesim.schedules.lookup import build

pytestmark = pytest.mark.gpu

SHAPE = Shape(layers=4, hidden=512, heads=8, ffn=1376, vocabulary=4096)


@pytest.fixture(scope="module")
def device() -> Iterator[torch.device]:
    """A group of one process over NCCL."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    place = torch.device("cuda", 0)
    torch.cuda.set_device(place)
    dist.init_process_group("nccl", device_id=place)
    yield place
    dist.destroy_process_group()


def split(microbatches: int) -> Schedule:
    return build("zb-h1", ranks=1, microbatches=microbatches)


def test_events_measure_what_the_device_does(device: torch.device) -> None:
    """A kernel of known length, issued without waiting, takes that long between its marks."""
    timer = CudaTimer()
    a = torch.randn(4096, 4096, device=device)
    for _ in range(3):
        a @ a
    timer.start()
    marks: list[Any] = [timer.mark()]
    for _ in range(10):
        a @ a
    marks.append(timer.mark())
    begin, end = timer.nanoseconds(marks)
    torch.cuda.synchronize()
    one, two = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    one.record()
    for _ in range(10):
        a @ a
    two.record()
    torch.cuda.synchronize()
    assert (end - begin) * 1e-6 == pytest.approx(one.elapsed_time(two), rel=0.3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_halves_add_up_on_the_device(device: torch.device, dtype: torch.dtype) -> None:
    found: list[list[torch.Tensor]] = []
    for strategy in (whole, by_graph):
        stage = tiny_stage(SHAPE, 1, 2, dtype=dtype).to(device)
        x = torch.randn(2, 64, 512, device=device, dtype=dtype, generator=torch.Generator(device).manual_seed(0))
        x.requires_grad_()
        saved = SavedTensors()
        with saved.hooks():
            y = stage(x)
        strategy(graph_of([y], [x], saved), [torch.ones_like(y)])()
        found.append([x.grad, *(weight.grad for weight in stage.parameters())])  # type: ignore[list-item]
    tolerance = 1e-10 if dtype == torch.float64 else 2e-2
    for one, other in zip(*found, strict=True):
        assert float((one - other).abs().max()) <= tolerance * float(one.abs().max())


def test_half_of_a_backward_costs_half(device: torch.device) -> None:
    """I and W together take no more than a tenth longer than the whole backward."""
    stage = tiny_stage(Shape(layers=8, hidden=2048, heads=16, ffn=5504), 1, 2, dtype=torch.bfloat16).to(device)
    x = torch.randn(8, 1024, 2048, device=device, dtype=torch.bfloat16, requires_grad=True)
    timer = CudaTimer()
    spans: dict[str, list[tuple[Any, Any, Any]]] = {"whole": [], "graph": []}
    timer.start()
    for _ in range(6):
        for name, strategy in (("whole", whole), ("graph", by_graph)):
            saved = SavedTensors()
            with saved.hooks():
                y = stage(x)
            graph, gradient = graph_of([y], [x], saved), torch.ones_like(y)
            begin = timer.mark()
            later = strategy(graph, [gradient])
            middle = timer.mark()
            later()
            spans[name].append((begin, middle, timer.mark()))
            x.grad = None
    took = {
        name: min(times[2] - times[0] for times in (timer.nanoseconds(list(one)) for one in each[2:]))
        for name, each in spans.items()
    }
    assert took["graph"] < 1.1 * took["whole"]


def test_a_run_is_timed_and_its_memory_is_the_simulated_one(device: torch.device) -> None:
    """Activations in flight grow the device's allocation by what the saved tensors weigh."""
    schedule = build("gpipe", ranks=1, microbatches=4)
    program = lower(schedule)
    pipeline = Pipeline(
        program,
        lambda stage: tiny_stage(SHAPE, stage, 1),
        loss_fn=next_token_loss,
        device=device,
        options=PipelineOptions(weigh_memory=True),
    )
    tokens = torch.randint(4096, (16, 257), device=device)
    batch = cut_batch(tokens[:, :-1], tokens[:, 1:], microbatches=4)
    pipeline.step(batch)
    before = torch.cuda.memory_allocated(device)
    records = gather(timed_step(pipeline.runner, batch))
    assert records is not None
    timeline = assemble(program, records)
    assert timeline.step_time_s > 0
    assert timeline.memory is not None
    assert records[0].device_peak_bytes is not None
    grown = records[0].device_peak_bytes - before
    weighed = float(timeline.memory.peak[0])
    assert weighed <= grown * 1.02  # the device also holds what is made and dropped within an action
    assert weighed >= 0.5 * grown


def test_a_profile_predicts_a_run(device: torch.device) -> None:
    task = Task(lower(split(4)), TinySource(SHAPE, seq=256), steps=5, samples=8, weigh_memory=True)
    context = Context(0, 1, device)
    found = profile(context, task, repeats=5, run=True)
    assert found is not None
    assert found.outcome is not None
    lists, numbers, _ = to_costs_file(task.program, found)
    predicted = 4 * (lists["F"][0] + lists["I"][0] + lists["W"][0] + 3 * numbers["host_s"])
    assert min(found.outcome.step_s) == pytest.approx(predicted, rel=0.5)
    outcome = train(context, task)
    assert outcome is not None
    assert outcome.losses[-1] < outcome.losses[0] + 0.1
