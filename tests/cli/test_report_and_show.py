"""`pipesim report` and `pipesim show`: pages from a case, from saved timelines and from profiler traces."""

import json
from pathlib import Path

import pytest

from pipesim.cli import app

CASE = ["1f1b", "-p", "4", "-m", "8", "--costs", "F=10ms,I=10ms,W=5ms,C=1ms"]
TRACES = sorted((Path(__file__).parent.parent / "data" / "kineto").glob("interleaved_*.gz"))


def saved(folder: Path, case: list[str] = CASE, name: str = "run.npz") -> Path:
    assert app.main(["simulate", *case, "--timeline", str(folder / name)]) == 0
    return folder / name


def test_a_report_says_how_to_make_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ["report", *CASE, "--out", str(tmp_path / "r.html")]
    monkeypatch.setattr("sys.argv", ["pipesim", *args])
    assert app.main(args) == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "pipesim report 1f1b -p 4 -m 8 --costs F=10ms,I=10ms,W=5ms,C=1ms" in page
    assert "What stands out" in page


def test_a_report_of_a_saved_timeline(tmp_path: Path) -> None:
    run = saved(tmp_path)
    assert app.main(["report", str(run), "--out", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").exists()


def test_show_gives_the_figures_of_simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = saved(tmp_path)
    capsys.readouterr()
    assert app.main(["simulate", *CASE, "--json"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    assert app.main(["show", str(run), "--json", "--out", str(tmp_path / "s.html")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {key: shown[key] for key in ("makespan_s", "bubble_fraction", "idle_s")} == {
        key: simulated[key] for key in ("makespan_s", "bubble_fraction", "idle_s")
    }


def test_two_runs_of_a_schedule_are_shown_with_their_difference(tmp_path: Path) -> None:
    one, other = saved(tmp_path), saved(tmp_path, [*CASE[:-1], "F=11ms,I=10ms,W=5ms,C=1ms"], "other.npz")
    assert app.main(["show", str(one), str(other), "--out", str(tmp_path / "d.html")]) == 0
    assert "<th>difference</th>" in (tmp_path / "d.html").read_text(encoding="utf-8")


def test_profiler_traces_become_a_timeline_and_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = ["--timeline", str(tmp_path / "t.npz"), "--trace", str(tmp_path / "t.json")]
    assert app.main(["show", *map(str, TRACES), *outputs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "imported"
    assert app.main(["show", str(tmp_path / "t.npz")]) == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.npz"], "No such file"),
        ([str(TRACES[0]), str(TRACES[0])], "of ranks 0, 0, not of 0 … 1"),
    ],
)
def test_what_cannot_be_shown(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["show", *args]) == 2
    assert message in capsys.readouterr().err


def test_one_trace_file_holds_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(saved(tmp_path))
    assert app.main(["show", run, run, "--trace", str(tmp_path / "t.json")]) == 2
    assert "these files hold 2 runs" in capsys.readouterr().err


def test_a_step_of_a_saved_timeline_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was taken, and nothing was done with it."""
    assert app.main(["show", str(saved(tmp_path)), "--step", "5"]) == 2
    assert "--step 5 without a profiler trace" in capsys.readouterr().err
