"""`pipesim schedules`, `schedule` and `check`: what they print, write, and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from pipesim.cli import app
from pipesim.ir.formats import read_schedule
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.lookup import build

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line: status, standard output, standard error."""

    def run(line: str) -> tuple[int, str, str]:
        status = app.main(line.split())
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_orders_as_text(run: Run) -> None:
    assert run("schedule 1f1b -p 3 -m 4") == (
        0,
        dedent("""\
        F0 F1 F2 B0 F3 B1 B2 B3
        F0 F1 B0 F2 B1 F3 B2 B3
        F0 B0 F1 B1 F2 B2 F3 B3
        """),
        "",
    )


def test_the_grid_that_papers_draw(run: Run) -> None:
    """Figure 4 of arXiv 2104.04473, for three ranks: a backward takes two units."""
    assert run("schedule 1f1b -p 3 -m 4 --grid") == (
        0,
        dedent("""\
          0              5              10             15
        0 F0 F1 F2 .  .  .  .  B0 -  F3 B1 -  .  B2 -  .  B3 -
        1 .  F0 F1 .  .  B0 -  F2 B1 -  F3 B2 -  .  B3 -  .  .
        2 .  .  F0 B0 -  F1 B1 -  F2 B2 -  F3 B3 -  .  .  .  .
        """),
        "",
    )


def test_a_grid_of_pairs_and_two_directions(run: Run) -> None:
    assert run("schedule dualpipe -p 2 -m 4 --grid") == (
        0,
        dedent("""\
          0                        5                        10
        0 0F0  3F2  0F1  3B2  -    3F3  &0B0 -    3B3  -    0I1  0W1
        1 2F2  1F0  2F3  1B0  -    1F1  &2B2 -    1B1  -    2I3  2W3
        """),
        "",
    )


def test_the_json_is_the_file_format(run: Run) -> None:
    status, out, _ = run("schedule dualpipe-v -p 2 -m 4 --json")
    found = json.loads(out)
    schedule = build("dualpipe-v", ranks=2, microbatches=4)
    assert status == 0
    assert {key: found[key] for key in ("name", "ranks", "microbatches", "placement", "orders")} == {
        "name": "dualpipe-v",
        "ranks": 2,
        "microbatches": 4,
        "placement": [0, 1, 1, 0],
        "orders": schedule.orders,
    }
    assert "0F3&3B1" in found["orders"][0]


@pytest.mark.parametrize("suffix", [".json", ".csv", ".txt"])
def test_files_written_are_read_and_pass(run: Run, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    assert run(f"schedule interleaved -p 2 -m 4 -v 2 --out {path}") == (0, "", "")
    assert read_schedule(path) == build("interleaved", ranks=2, microbatches=4, virtual=2)
    status, out, err = run(f"check {path}")
    assert (status, err) == (0, "")
    assert "free of deadlock with transfers in edge lanes" in out


def test_transfers_of_a_file_are_checked_as_they_stand(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert run(f"schedule 1f1b -p 2 -m 2 --out {path} --transfers") == (0, "", "")
    for comm in ("edge", "pair", "rank", "blocking"):
        status, out, _ = run(f"check {path} --comm {comm}")
        assert (status, f"with its own transfers in {comm} lanes" in out) == (0, True)
    text = path.read_text()
    path.write_text(text.replace("1RECV_F0,1F0,1RECV_F1", "1RECV_F1,1RECV_F0,1F0"))
    assert path.read_text() != text
    status, _, err = run(f"check {path}")
    assert (status, err) == (2, f"{path}: rank 0 sends 0SEND_F0 before 0SEND_F1, but rank 1 receives 1RECV_F1 first\n")


def test_a_files_own_transfers_are_simulated(run: Run, tmp_path: Path) -> None:
    """Batches of torch's kind: the file's order of transfers, not the one that we would choose."""
    path = tmp_path / "a.csv"
    run(f"schedule 1f1b -p 2 -m 2 --out {path} --transfers")
    text = path.read_text()
    assert "1RECV_F1,1B0,1SEND_B0" in text
    times = [_makespan(run, f"simulate {path} --costs F=1,B=1,C=4 --comm pair --json")]
    path.write_text(
        text.replace("1RECV_F1,1B0,1SEND_B0", "1B0,1SEND_B0,1RECV_F1").replace(
            "0F1,0SEND_F1,0RECV_B0", "0F1,0RECV_B0,0SEND_F1"
        )
    )
    times.append(_makespan(run, f"simulate {path} --costs F=1,B=1,C=4 --comm pair --json"))
    assert times[0] < times[1]
    path.write_text(text.replace("0SEND_F1,", ""))
    status, _, err = run(f"simulate {path} --costs F=1,B=1")
    assert (status, "rank 0 does not send the result of 0F1" in err) == (2, True)


def _makespan(run: Run, line: str) -> float:
    status, out, err = run(line)
    assert (status, err) == (0, "")
    return float(json.loads(out)["makespan_s"])


def test_a_broken_file_lists_its_faults(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("F0 F1 B0\nF0 B0 F1 B1 B1\n")
    status, out, err = run(f"check {path}")
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        f"{path}: 0B1 is missing: each backward (B, or I and W) must be there once",
        f"{path}: 1B1 is there 2 times",
    ]
    status, out, err = run(f"check {path} --json")
    assert (status, err) == (2, "")
    assert json.loads(out)["ok"] is False
    assert len(json.loads(out)["faults"]) == 2


def test_a_deadlock_prints_its_cycle(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("F0 B0 F1 B1\nF1 B1 F0 B0\n")
    status, _, err = run(f"check {tmp_path / 'a.txt'}")
    assert status == 2
    assert "a cycle of waits" in err
    assert "rank 0 cannot start 0B0 before 1B0 on rank 1 ends" in err


def test_a_memory_limit(run: Run) -> None:
    assert run("check 1f1b -p 4 -m 8 --max-activations 4")[0] == 0
    status, _, err = run("check 1f1b -p 4 -m 8 --max-activations 3")
    assert (status, err) == (2, "1f1b: rank 0 holds 4 microbatches of activations, 3 are allowed\n")


def test_a_check_says_what_it_found(run: Run) -> None:
    assert run("check gems -p 4 -m 3 --comm blocking") == (
        0,
        dedent("""\
        gems: 4 ranks, 8 stages (bidirectional), 3 microbatches, 24 actions
        complete, correctly placed, every action's needs are met
        free of deadlock with transfers in blocking lanes, every send waiting for its receive
        peak activations 1 microbatches (rank 0)
        """),
        "",
    )
    assert json.loads(run("check gems -p 4 -m 3 --json")[1]) == {"name": "gems", "ok": True, "faults": []}


def test_offload_and_other_options(run: Run) -> None:
    assert run("schedule gpipe -p 1 -m 3 --offload 1")[1] == "F0 X0 F1 X1 L0 F2 X2 L1 B0 L2 B1 B2\n"
    assert run("schedule chimera -p 4 -m 4 -o pipes=4") == run("schedule chimera -p 4 -m 4 --option pipes=4")
    assert run("schedule seq1f1b -p 1 -m 1 --slices 2")[1] == "F0 F0.1 B0.1 B0\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("schedule 1f2b -p 4 -m 8", "no schedule '1f2b'; did you mean"),
        ("schedule 1f1b -p 4", "schedule 1f1b needs a number of microbatches"),
        ("schedule 1f1b -p 4 -m 8 -v 2", "schedule 1f1b has no option 'virtual'; it has none"),
        ("schedule chimera -p 3 -m 8", "two directions need an even number; try 2 or 4 ranks"),
        ("schedule 1f1b -p 4 -m 8 -o pipes", "--option 'pipes': expected a name and a value"),
        ("schedule 1f1b -p 4 -m 8 --grid --json", "--grid and --json are two outputs"),
        ("schedule 1f1b -p 4 -m 8 --offload 2", "offload cannot have share 2: it is a part of the activations"),
        ("schedule dualpipe -p 4 -m 8 --out a.csv", "torch's .csv cannot express two replicas of a stage"),
        ("schedule 1f1b -p 4 -m 8 --out no/such/folder/a.csv", "cannot write no/such/folder/a.csv: the folder"),
        ("schedule 1f1b -p 4 -m 8 --out a.xml", "cannot write a.xml: a schedule is a .json, .csv, .txt file"),
        ("schedule 1f1b -p 1 -m 400000 --grid", "a grid of more than 1000000 cells is not drawn"),
        ("check 1f1b -p 4 -m 8 --comm telepathy", "--comm telepathy: no such policy; there are edge, pair"),
        ("check no_such.json", "cannot read no_such.json: No such file or directory"),
        ("check no_such.py:build -p 2 -m 2", "no_such.py:build: cannot be loaded: FileNotFoundError"),
    ],
)
def test_what_cannot_work_is_one_line_and_status_2(
    run: Run, line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(line)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("pipesim: error: ")
    assert message in err
    assert not list(tmp_path.iterdir())


def test_the_list_names_every_family(run: Run) -> None:
    status, out, _ = run("schedules")
    assert status == 0
    assert all(name in out for name in FAMILIES)
    found = {family["name"]: family for family in json.loads(run("schedules --json")[1])}
    assert list(found) == list(FAMILIES)
    assert found["hanayo"] == {
        "name": "hanayo",
        "summary": "Fold the model down and up the ranks v/2 times, so that one copy of it does what Chimera does "
        "with two.",
        "rule": "an even number of stages a rank",
        "options": {"virtual": 2},
        "makespan": {"formula": "m(F+I+W) + (p-1)(F+I+W)/v", "where": "p divides m, F = I+W"},
        "span": None,
        "latency": None,
        "peak_activations": "with u = min(m, p): ((v-1)u + 1 + min(r, u-1))/v",
        "synchronous": True,
        "trains": True,
        "paper": "Liu et al. 2023, arXiv 2308.15762",
    }
