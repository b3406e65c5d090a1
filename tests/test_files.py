"""A result is written whole or not at all, and whoever cannot write says where and why."""

import os
import re
import stat
from pathlib import Path

import pytest

from pipesim import files
from pipesim.files import CannotRead, CannotWrite, read_text, require_folder, write_atomically, written_together


def test_text_and_bytes(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.txt", "2F0 → 3F0\n")
    write_atomically(str(tmp_path / "b.bin"), b"\x00\xff")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "2F0 → 3F0\n"
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\xff"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.bin"]


def test_replaces_and_keeps_the_permissions(tmp_path: Path) -> None:
    path = tmp_path / "chart.html"
    path.write_text("a much longer text than the new one")
    path.chmod(0o640)
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to("real.html")
    write_atomically(tmp_path / "link.html", "new")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text() == "new"


def test_what_is_no_ordinary_file_is_written_to() -> None:
    write_atomically("/dev/null", "text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    path = tmp_path / "chart.html"
    path.write_text("old")

    def fails(*_: object) -> None:
        raise failure

    monkeypatch.setattr(os, "replace", fails)
    expected = CannotWrite if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_atomically(path, "new")
    assert os.listdir(tmp_path) == ["chart.html"]
    assert path.read_text() == "old"


def test_says_where_and_why_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, reason in [
        (tmp_path / "no" / "chart.html", f"the folder {tmp_path / 'no'} does not exist"),
        (tmp_path / "file" / "chart.html", f"the folder {tmp_path / 'file'} is not a folder"),
        (tmp_path, "it is a folder; give the name of a file in it"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "a\0b", "null"),
        ("/dev/full", "No space left on device"),
    ]:
        with pytest.raises(CannotWrite, match=re.escape(f"cannot write {path}: ") + f".*{re.escape(reason)}"):
            write_atomically(path, "text")
    assert os.listdir(tmp_path) == ["file"]


def test_a_read_only_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.html"
    path.write_text("old")
    monkeypatch.setattr(files.os, "access", lambda *_: False)  # root may write anything
    with pytest.raises(CannotWrite, match="the file is read-only"):
        write_atomically(path, "new")
    assert path.read_text() == "old"


def test_read_text(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"\xef\xbb\xbf{}")
    (tmp_path / "binary").write_bytes(b"ab\xff")
    assert read_text(tmp_path / "good") == "{}"
    for path, reason in [
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "binary", "not a text in UTF-8 (byte 2)"),
        (tmp_path / "a\0b", "null"),
    ]:
        with pytest.raises(CannotRead, match=re.escape(f"cannot read {path}: ") + f".*{re.escape(reason)}"):
            read_text(path)
    with pytest.raises(CannotRead, match="longer than 3 bytes"):
        read_text(tmp_path / "good", at_most_bytes=3)


def test_files_that_belong_together_come_together(tmp_path: Path) -> None:
    with written_together(tmp_path / "new" / "plan") as part:
        write_atomically(part / "a.txt", "a")
        write_atomically(part / "b.txt", "b")
        assert not (tmp_path / "new" / "plan").exists()
    assert sorted(path.name for path in (tmp_path / "new" / "plan").iterdir()) == ["a.txt", "b.txt"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["plan"]


def test_a_full_disk_leaves_nothing_of_them(tmp_path: Path) -> None:
    """A plan was saved on a disk with room for four of its six files."""
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "a.txt").write_text("old")

    def save() -> None:
        with written_together(tmp_path / "plan") as part:
            write_atomically(part / "a.txt", "new")
            raise OSError(28, "No space left on device")

    with pytest.raises(CannotWrite, match=r"cannot write .*plan: No space left"):
        save()
    assert (tmp_path / "plan" / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_folder_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="file is not a folder"):
        require_folder(tmp_path / "file" / "plan")
    require_folder(tmp_path / "new" / "plan")
