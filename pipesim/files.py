"""Files: read whole, written whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipesim.errors import PipesimError


@dataclass(eq=False)
class CannotWrite(PipesimError):
    """A result has nowhere to go."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"cannot write {self.path}: {self.reason}"


@dataclass(eq=False)
class CannotRead(PipesimError):
    """An input is not there, or is not what it should be."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"cannot read {self.path}: {self.reason}"


def read_text(path: str | os.PathLike[str], *, at_most_bytes: int = 1 << 30) -> str:
    """The text of a UTF-8 file; a folder, a missing, huge or binary file is a `CannotRead`."""
    try:
        with open(path, "rb") as file:
            data = file.read(at_most_bytes + 1)
        if len(data) > at_most_bytes:
            raise CannotRead(os.fspath(path), f"longer than {at_most_bytes} bytes")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CannotRead(os.fspath(path), f"not a text in UTF-8 (byte {error.start})") from None
    except (OSError, ValueError) as error:
        raise CannotRead(os.fspath(path), _reason(error)) from None


def write_atomically(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write `data` so that `path` holds either what it held before or all of it, whatever goes wrong.

    It is written under a temporary name in the same folder and renamed. A link is followed, and what is
    no ordinary file (a pipe, `/dev/stdout`) is written to directly.
    """
    data = data.encode() if isinstance(data, str) else data
    try:
        target = Path(os.path.realpath(path))
        reason = _why_not(target)
        if reason is None:
            _write(target, data)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise CannotWrite(os.fspath(path), _reason(error)) from None
    if reason is not None:
        raise CannotWrite(os.fspath(path), reason)


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise `CannotWrite` now if `path` could not be written later, before long work begins."""
    try:
        reason = _why_not(Path(os.path.realpath(path)))
    except (OSError, ValueError) as error:
        reason = _reason(error)
    if reason is not None:
        raise CannotWrite(os.fspath(path), reason)


def require_folder(path: str | os.PathLike[str]) -> None:
    """Raise `CannotWrite` now if no folder could be there later."""
    target = Path(os.path.realpath(path))
    above = next(one for one in (target, *target.parents) if one.exists())
    if not above.is_dir():
        raise CannotWrite(os.fspath(path), f"{above} is not a folder")
    if not os.access(above, os.W_OK):
        raise CannotWrite(os.fspath(path), f"the folder {above} cannot be written to")


@contextmanager
def written_together(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write files to, which come to `folder` when all are written: all or none. Raises CannotWrite."""
    target = Path(os.path.realpath(folder))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent) as part:
            yield Path(part)
            target.mkdir(exist_ok=True)
            for path in Path(part).iterdir():
                os.replace(path, target / path.name)
    except CannotWrite as error:
        raise CannotWrite(os.fspath(folder), error.reason) from None
    except OSError as error:
        raise CannotWrite(os.fspath(folder), _reason(error)) from None


def _why_not(target: Path) -> str | None:
    """What the system would say less clearly, or not at all: a rename also replaces a read-only file."""
    if target.is_dir():
        return "it is a folder; give the name of a file in it"
    if not target.parent.is_dir():
        there = "is not a folder" if target.parent.exists() else "does not exist"
        return f"the folder {target.parent} {there}"
    if not target.exists() and not os.access(target.parent, os.W_OK):
        return f"the folder {target.parent} cannot be written to"
    if target.exists() and not os.access(target, os.W_OK):
        return "the file is read-only"
    return None


def _write(target: Path, data: bytes) -> None:
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            if target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
            file.write(data)
        os.replace(temporary, target)
    except BaseException:  # Ctrl-C too
        with suppress(OSError):
            temporary.unlink()
        raise


def _reason(error: OSError | ValueError) -> str:
    """What the system says, without the number and the path that `str(error)` carries."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
