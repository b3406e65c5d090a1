"""PyTorch's own runtime reads what we write, and we read what it writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pipesim.ir.check import check, check_program
from pipesim.ir.formats import read_program, read_schedule, write_schedule
from pipesim.ir.program import COMM_POLICIES
from pipesim.ir.schedule import Schedule
from pipesim.schedules.dualpipe import dualpipe_v
from pipesim.schedules.gpipe import gpipe
from pipesim.schedules.hanayo import hanayo
from pipesim.schedules.interleaved import interleaved
from pipesim.schedules.one_f_one_b import one_f_one_b
from pipesim.schedules.zb_h1 import zb_h1
from pipesim.schedules.zb_v import zb_v

torch = pytest.importorskip("torch")
pipelining = pytest.importorskip("torch.distributed.pipelining.schedules")
visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")

_OURS: dict[str, Callable[..., Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "hanayo": partial(hanayo, virtual=4),
    "dualpipe-v": dualpipe_v,
    "zb-h1": zb_h1,
    "zb-v": zb_v,
}


def _runtime(schedule: Schedule) -> Any:
    """Torch's runtime over stages that are not there."""
    stage = mock.create_autospec(visualizer.PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod = 0, schedule.ranks, None
    stage.num_stages = schedule.placement.stages
    virtual = schedule.placement.stages // schedule.ranks
    return pipelining._PipelineScheduleRuntime([stage] * virtual, schedule.microbatches)


def _texts(rows: dict[int, list[Any]]) -> list[list[str]]:
    return [[str(action) for action in rows[rank] if action is not None] for rank in sorted(rows)]


def _in_torchs_words(schedule: Schedule) -> list[list[str]]:
    def word(text: str) -> str:
        return f"({text.replace('&', ';')})OVERLAP_F_B" if "&" in text else text

    return [[word(text) for text in order] for order in schedule.orders]


@pytest.mark.parametrize("name", _OURS)
def test_torch_loads_our_compute_only_file_and_lowers_it(name: str, tmp_path: Path) -> None:
    schedule = _OURS[name](ranks=4, microbatches=8)
    write_schedule(schedule, tmp_path / "ours.csv")
    runtime = _runtime(schedule)
    runtime._load_csv(str(tmp_path / "ours.csv"))
    assert _texts(runtime.pipeline_order) == _in_torchs_words(schedule)
    assert runtime.stage_index_to_group_rank == dict(enumerate(schedule.placement.ranks_of_stages))


@pytest.mark.parametrize("name", _OURS)
def test_torch_loads_our_file_with_transfers_as_it_stands(name: str, tmp_path: Path) -> None:
    schedule = _OURS[name](ranks=4, microbatches=8)
    write_schedule(schedule, tmp_path / "ours.csv", transfers=True)
    runtime = _runtime(schedule)
    runtime._load_csv(str(tmp_path / "ours.csv"), format="compute_comms")
    rows = [line.split(",") for line in (tmp_path / "ours.csv").read_text().splitlines()]
    assert _texts(runtime.pipeline_order_with_comms) == rows


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "hanayo", "zb-h1", "zb-v"])
def test_torchs_own_dry_run_comes_to_the_end_of_our_transfers(name: str, tmp_path: Path) -> None:
    """It knows no pairs, gathering or reductions, so those are taken out of what it is given."""
    schedule = _OURS[name](ranks=4, microbatches=8)
    write_schedule(schedule, tmp_path / "ours.csv", transfers=True)
    runtime = _runtime(schedule)
    runtime._load_csv(str(tmp_path / "ours.csv"), format="compute_comms")
    words = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
    for rank, row in runtime.pipeline_order_with_comms.items():
        runtime.pipeline_order_with_comms[rank] = [a for a in row if a.computation_type.value not in words]
    expected = {rank: len(row) for rank, row in runtime.pipeline_order_with_comms.items()}
    ran = runtime._simulate()
    assert {rank: sum(action is not None for action in row) for rank, row in ran.items()} == expected


_TORCHS = {
    "GPipe": 1,
    "Interleaved1F1B": 2,
    "LoopedBFS": 2,
    "InterleavedZeroBubble": 2,
    "ZBVZeroBubble": 2,
    "DualPipeV": 2,
}


def _dump(name: str, virtual: int, path: Path, form: str) -> list[list[str]]:
    """Torch writes its own schedule; its orders."""
    orders = visualizer.get_schedule_ops(name, 4, 8, num_stages_per_rank=virtual)
    orders = [[a for a in order if a is None or a.is_compute_op] for order in orders]  # GPipe's has reductions, too
    stage = mock.create_autospec(visualizer.PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod, stage.num_stages = 0, 4, None, 4 * virtual
    runtime = pipelining._PipelineScheduleRuntime([stage] * virtual, 8)
    runtime.pipeline_order = {rank: list(order) for rank, order in enumerate(orders)}
    runtime._prepare_schedule_with_comms({rank: list(order) for rank, order in enumerate(orders)})
    runtime._dump_csv(str(path), format=form)
    return _texts(dict(enumerate(orders)))


@pytest.mark.parametrize("name", _TORCHS)
def test_we_load_what_torch_dumps(name: str, tmp_path: Path) -> None:
    orders = _dump(name, _TORCHS[name], tmp_path / "torch.csv", "compute_only")
    schedule = read_schedule(tmp_path / "torch.csv")
    check(schedule)
    assert _in_torchs_words(schedule) == orders
    assert read_program(tmp_path / "torch.csv") is None


@pytest.mark.parametrize("name", _TORCHS)
def test_torchs_own_transfers_pass_the_checker_in_all_lanes(name: str, tmp_path: Path) -> None:
    orders = _dump(name, _TORCHS[name], tmp_path / "torch.csv", "compute_comms")
    assert _in_torchs_words(read_schedule(tmp_path / "torch.csv")) == orders
    for comm in COMM_POLICIES:
        program = read_program(tmp_path / "torch.csv", comm=comm)
        assert program is not None
        check_program(program)


@pytest.mark.parametrize(
    ("ours", "torchs"), [("gpipe", "GPipe"), ("interleaved", "Interleaved1F1B"), ("dualpipe-v", "DualPipeV")]
)
def test_both_write_the_same_file(ours: str, torchs: str, tmp_path: Path) -> None:
    _dump(torchs, _TORCHS[torchs], tmp_path / "torch.csv", "compute_only")
    write_schedule(_OURS[ours](ranks=4, microbatches=8), tmp_path / "ours.csv")
    cells = [row.split(",") for row in (tmp_path / "torch.csv").read_text().splitlines()]
    assert [row.split(",") for row in (tmp_path / "ours.csv").read_text().splitlines()] == [
        [cell for cell in row if cell] for row in cells
    ]


_FORMS = ("compute_only", "compute_comms")


def _train(rank: int, folder: str, schedule: Schedule) -> None:
    """One rank of torch's runtime running our files; leaves the gradients of its stages."""
    import torch.distributed as dist

    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=schedule.ranks)
    for form in _FORMS:
        _train_once(rank, folder, form, schedule)
    dist.destroy_process_group()


def _train_once(rank: int, folder: str, form: str, schedule: Schedule) -> None:
    from torch.distributed.pipelining import PipelineStage

    modules = _modules(schedule.placement.stages)
    held = schedule.placement.stages_of(rank)
    stages = [PipelineStage(modules[stage], stage, schedule.placement.stages, torch.device("cpu")) for stage in held]
    runtime = pipelining._PipelineScheduleRuntime(stages, schedule.microbatches, loss_fn=_loss, scale_grads=False)
    runtime._load_csv(f"{folder}/{form}.csv", format=form)
    inputs, targets = _batch(schedule.microbatches)
    first, last = 0 in held, schedule.placement.stages - 1 in held
    runtime.step(*((inputs,) if first else ()), **({"target": targets, "losses": []} if last else {}))
    torch.save({stage: modules[stage].weight.grad for stage in held}, f"{folder}/{form}-{rank}.pt")


def _modules(stages: int) -> list[Any]:
    torch.manual_seed(0)
    return [torch.nn.Linear(3, 3, dtype=torch.float64) for _ in range(stages)]


def _batch(microbatches: int) -> tuple[Any, Any]:
    torch.manual_seed(1)
    return torch.randn(2, 2 * microbatches, 3, dtype=torch.float64).unbind()


def _loss(output: Any, target: Any) -> Any:
    return ((output - target) ** 2).sum()


@pytest.mark.slow
def test_torch_trains_with_our_files(tmp_path: Path) -> None:
    """Gradients are those of one process, with torch's own transfers and with ours."""
    schedule = interleaved(ranks=2, microbatches=4)
    write_schedule(schedule, tmp_path / "compute_only.csv")
    write_schedule(schedule, tmp_path / "compute_comms.csv", transfers=True)
    torch.multiprocessing.spawn(_train, (str(tmp_path), schedule), nprocs=2)
    modules = _modules(4)
    inputs, targets = _batch(4)
    _loss(torch.nn.Sequential(*modules)(inputs), targets).backward()
    for form in _FORMS:
        for rank in range(2):
            for stage, grad in torch.load(tmp_path / f"{form}-{rank}.pt").items():
                assert torch.allclose(grad, modules[stage].weight.grad, rtol=1e-9)
