"""Checkpoints that are damaged, foreign, unfinished or cannot be written: never loaded, never in the way."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from pipesim.backends.checkpoint.restore import NothingWhole, find_newest, load_into
from pipesim.backends.checkpoint.saver import Checkpoints, Saver
from pipesim.backends.checkpoint.storage import FolderWriter
from pipesim.backends.checkpoint.tensors import Held, OtherModel
from pipesim.files import CannotWrite

pytestmark = pytest.mark.usefixtures("alone")


def held_of(module: nn.Module) -> Held:
    return Held({0: module}, {0: torch.optim.AdamW(module.parameters())}, 1)


def trained(step: int, width: int = 3) -> Held:
    """A module whose weights are all `step`, with optimizer states."""
    module = nn.Linear(width, 2)
    held = held_of(module)
    module(torch.ones(1, width)).sum().backward()
    held.optimizers[0].step()
    for weight in module.parameters():
        weight.data.fill_(step)
    return held


def saver(root: Path, step: int, **options: Any) -> Saver:
    made = Saver(trained(step), Checkpoints(root, keep=2), **options)
    made.save(step, {"step": step})
    made.wait()
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two checkpoints, of steps 1 and 2."""
    place = tmp_path / "run"
    for step in (1, 2):
        assert saver(place, step).failures == 0
    return place


def newest(root: Path) -> int:
    """The step that is found, once loaded into another module."""
    found = find_newest(root)
    assert found is not None
    held = held_of(nn.Linear(3, 2))
    load_into(held, found)
    (weight, _) = held.modules[0].parameters()
    assert weight.data.unique().tolist() == [found.description.step]
    assert float(held.states(0, weight)["step"]) == 1.0  # type: ignore[index, arg-type]
    return found.description.step


def names(root: Path) -> list[str]:
    """Of what is in a folder, beside the name of its owner."""
    return sorted(path.name for path in root.iterdir() if path.name != ".owner")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def newer(path: Path) -> None:
    """A version that this program does not know, with a checksum of its own that is right."""
    from pipesim.backends.checkpoint.description import _digest

    content = json.loads(path.read_text())["content"] | {"version": 2}
    path.write_text(json.dumps({"sha256": _digest(content), "content": content}))


def other_step(path: Path) -> None:
    path.write_text(path.read_text().replace('"step": 2', '"step": 3'))


FAULTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "truncated tensors": ("*.safetensors", lambda path: os.truncate(path, 100), "100 bytes"),
    "a flipped bit": ("*.safetensors", flip, "its checksum is another"),
    "foreign tensors": ("*.safetensors", lambda path: save_file({"x": torch.ones(2)}, path), "damaged"),
    "missing tensors": ("*.safetensors", Path.unlink, "No such file"),
    "a truncated description": ("*.json", lambda path: os.truncate(path, 200), "damaged"),
    "an empty description": ("*.json", lambda path: os.truncate(path, 0), "damaged"),
    "a missing description": ("*.json", Path.unlink, "No such file"),
    "a changed description": ("*.json", other_step, "its checksum is another"),
    "a foreign description": ("*.json", lambda path: path.write_text("{}"), "not a checkpoint of pipesim"),
    "a pickle": ("*.json", lambda path: path.write_bytes(b"\x80\x04cos\nsystem\n"), "not a text"),
    "a newer version": ("*.json", newer, "version"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_checkpoint_is_passed_over(fault: str, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    pattern, damage, says = FAULTS[fault]
    damage(next((root / "step-00000002").glob(pattern)))
    assert newest(root) == 1
    assert "checkpoint step-00000002 is passed over" in caplog.text
    assert says in caplog.text
    saver(root, 2)  # trains to there again
    assert newest(root) == 2


def test_none_is_whole(root: Path) -> None:
    for path in root.glob("*/*.safetensors"):
        flip(path)
    with pytest.raises(NothingWhole, match=r"none of the 2 checkpoints .* can be read"):
        find_newest(root)


def test_none_is_there(tmp_path: Path) -> None:
    assert find_newest(tmp_path / "nowhere") is None
    assert find_newest(tmp_path) is None


def test_what_a_killed_job_left_is_not_loaded_and_goes(root: Path) -> None:
    shutil.copytree(root / "step-00000002", root / ".step-00000009.0123abcd.part")
    (root / "step-00000007.backup").mkdir()
    assert newest(root) == 2
    saver(root, 3)
    assert names(root) == ["step-00000002", "step-00000003", "step-00000007.backup"]


class FullDisk(FolderWriter):
    """Writes half of it."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        (plan.storage_data.folder / "half").write_bytes(b"x")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class LostAtTheEnd(FolderWriter):
    """Cannot write the description."""

    def finish(self, metadata: Any, results: Any) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize(("writer", "says"), [(FullDisk, "No space left"), (LostAtTheEnd, "quota exceeded")])
def test_a_full_disk(
    writer: type[FolderWriter], says: str, behind: bool, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Saver(trained(3), Checkpoints(root, keep=2, behind=behind), make_writer=writer)
    made.save(3, {})
    made.wait()
    assert (made.failures, made.saved) == (1, None)
    assert says in caplog.text
    assert "training goes on" in caplog.text
    assert names(root) == ["step-00000001", "step-00000002"]
    assert newest(root) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20k", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_small_file_system(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    saver(small_disk, 1)
    (small_disk / "other").write_bytes(bytes(1000))
    big = Saver(trained(2, width=3000), Checkpoints(small_disk))
    big.save(2, {})
    big.wait()
    assert big.failures == 1
    assert "No space left" in caplog.text
    assert newest(small_disk) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match=r"cannot write .*file/run: "):
        saver(tmp_path / "file" / "run", 1)
    with pytest.raises(CannotWrite, match="cannot write /proc/run: "):
        saver(Path("/proc/run"), 1)


def test_a_job_that_another_has_replaced_writes_no_more(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two parts of a job that lost sight of each other: the one that began last has the folder."""
    older = Saver(trained(3), Checkpoints(root, keep=2))
    newer = Saver(trained(4), Checkpoints(root, keep=2))
    older._seen_s = newer._seen_s = 0.0  # else it looks once a second
    assert older.taken_over()
    assert not newer.taken_over()
    older.save(3, {})
    older.wait()
    assert older.failures == 1
    assert "another job has begun" in caplog.text
    newer.save(4, {})
    newer.wait()
    assert newest(root) == 4


def test_another_model(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    found = find_newest(root)
    assert found is not None
    for module, says in (
        (nn.Linear(4, 2), r"weight is \[2, 3\] there and \[2, 4\] here"),
        (nn.Linear(3, 2).double(), "weight is float32 there and float64 here"),
        (nn.Linear(3, 2, bias=False), "bias is in it, but not in this model"),
        (nn.Sequential(nn.Linear(3, 2)), "0.weight is not in it"),
    ):
        with pytest.raises(OtherModel, match=says):
            load_into(held_of(module), found)


def test_nothing_in_a_checkpoint_is_a_pickle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "load", None)
    assert {path.suffix for path in root.glob("*/*")} == {".json", ".safetensors"}
    assert newest(root) == 2
