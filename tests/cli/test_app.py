"""What the command line does with what it is given: one line and a status, never a traceback."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import typer

import pipesim
from pipesim import cli
from pipesim.cli import app
from pipesim.files import CannotWrite

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line on commands made for the test: name=function."""

    def run(*args: str, **commands: object) -> tuple[int, str, str]:
        module = ModuleType("commands")
        vars(module).update(commands)
        monkeypatch.setitem(sys.modules, "commands", module)
        monkeypatch.setattr(app, "COMMANDS", {name.replace("_", "-"): "commands" for name in commands})
        status = app.main(args)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def _raises(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def _raises_with_argument(error: BaseException) -> Callable[[str], None]:
    return lambda name: _raises(error)()


def test_runs_a_command(run: Run) -> None:
    def say_twice(word: str, *, loud: bool = False) -> None:
        print(word.upper() if loud else word)

    assert run("say-twice", "hello", "--loud", say_twice=say_twice) == (0, "HELLO\n", "")


def test_a_group_is_a_typer_of_its_own(run: Run) -> None:
    group = typer.Typer()
    group.command("one")(lambda: print("1"))
    group.command("two")(lambda: print("2"))
    assert run("show", "two", show=group) == (0, "2\n", "")


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"pipesim {pipesim.__version__}\n", "")


def test_nothing_asked_for_is_help(run: Run) -> None:
    def simulate() -> None:
        """Say when everything happens."""

    status, out, err = run(simulate=simulate)
    assert (status, err) == (0, "")
    assert "Say when everything happens." in out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            CannotWrite("a/b.html", "the folder a does not exist"),
            "cannot write a/b.html: the folder a does not exist",
        ),
        (OSError(28, "No space left on device"), "No space left on device"),
        (PermissionError(13, "Permission denied", "x.json"), "x.json: Permission denied"),
        (typer.BadParameter("-m must be even"), "Invalid value: -m must be even"),
        (OverflowError("int too large"), "a number is beyond all that can be computed with: int too large"),
        (MemoryError(), "not enough memory for this"),
    ],
)
def test_an_error_is_one_line_and_status_2(run: Run, error: Exception, line: str) -> None:
    assert run("fails", fails=_raises(error)) == (2, "", f"pipesim: error: {line}\n")


def test_unknown_command_and_option(run: Run) -> None:
    status, _, err = run("simulat", simulate=_raises(AssertionError()), compare=_raises(AssertionError()))
    assert (status, err) == (2, "pipesim: error: no command 'simulat'; did you mean simulate?\n")
    status, _, err = run("zzz", simulate=_raises(AssertionError()), compare=_raises(AssertionError()))
    assert (status, err) == (2, "pipesim: error: no command 'zzz'; there are simulate, compare\n")
    status, _, err = run("simulate", "--bogus", simulate=lambda: None)
    assert (status, err) == (2, "pipesim: error: No such option: --bogus\n")


def test_ctrl_c_is_quiet(run: Run) -> None:
    assert run("fails", fails=_raises(KeyboardInterrupt())) == (130, "", "")


def test_ctrl_c_while_we_are_still_importing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a traceback out of the import system."""
    monkeypatch.setattr("pipesim.cli.import_module", _raises_with_argument(KeyboardInterrupt()))
    assert cli.main(["--version"]) == 130


def test_a_mistake_of_ours_keeps_its_traceback(run: Run) -> None:
    with pytest.raises(ZeroDivisionError):
        run("fails", fails=_raises(ZeroDivisionError()))


def test_only_the_command_asked_for_is_imported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "COMMANDS", {"broken": "no.such.module"})
    assert run("--version")[0] == 0


def test_every_command_has_a_file_and_a_help_line() -> None:
    for name in app.COMMANDS:
        assert app._load(name).get_short_help_str(), f"{name}: its function has no docstring"


COMMAND = Path(sysconfig.get_path("scripts")) / "pipesim"


@pytest.mark.parametrize("command", [[sys.executable, "-m", "pipesim"], [str(COMMAND)]])
def test_starts_as_a_module_and_as_a_command(command: list[str]) -> None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"pipesim {pipesim.__version__}\n"


def _status_and_stderr(stdout: int) -> tuple[int, str]:
    command = [sys.executable, "-m", "pipesim", "--help"]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, done.stderr


def test_a_reader_that_went_away_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert _status_and_stderr(writer) == (1, "")
    finally:
        os.close(writer)


def test_a_full_disk_is_said() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert _status_and_stderr(full) == (2, "pipesim: error: No space left on device\n")
    finally:
        os.close(full)


def test_help_needs_no_torch() -> None:
    """The list of commands once failed where only the core is installed: `run` asked for torch on import."""
    code = "import sys; sys.modules['torch'] = None; from pipesim.cli import main; sys.exit(main(['--help']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "generate" in done.stdout
