"""Files of schedules: what is written is read back, and what is no schedule is refused in one sentence."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.errors import PipesimError
from pipesim.files import CannotRead, CannotWrite
from pipesim.ir.check import check
from pipesim.ir.formats import (
    CannotExpress,
    MalformedFile,
    json_format,
    read_program,
    read_schedule,
    text_format,
    torch_csv,
    write_schedule,
)
from pipesim.ir.schedule import Schedule
from pipesim.schedules.lookup import build
from pipesim.schedules.offload import with_offload

_SMALL = {
    "gpipe": {},
    "1f1b": {},
    "interleaved": {"virtual": 2},
    "chimera": {},
    "dualpipe": {},
    "dualpipe-v": {},
    "seq1f1b": {"slices": 3},
    "decode": {"slices": 3},
    "bpipe": {},
    "pipedream": {},
    "forward-only": {},
}


def _schedule(name: str) -> Schedule:
    return build(name, ranks=4, microbatches=8, **_SMALL[name])


@pytest.mark.parametrize("name", _SMALL)
@pytest.mark.parametrize("suffix", [".json", ".txt"])
def test_our_files_hold_all_of_a_schedule(name: str, suffix: str, tmp_path: Path) -> None:
    written = _schedule(name)
    write_schedule(written, tmp_path / f"a{suffix}")
    read = read_schedule(tmp_path / f"a{suffix}")
    assert read == written
    assert read.name == name


def test_offloaded_schedules_keep_their_moves(tmp_path: Path) -> None:
    written = with_offload(_schedule("1f1b"), share=0.5)
    for suffix in (".json", ".txt"):
        write_schedule(written, tmp_path / f"a{suffix}")
        assert read_schedule(tmp_path / f"a{suffix}") == written


def test_the_json_format_in_a_picture() -> None:
    assert json_format.dumps(build("1f1b", ranks=2, microbatches=2)) == dedent("""\
        {
         "format": "pipesim-schedule",
         "version": 1,
         "name": "1f1b",
         "ranks": 2,
         "microbatches": 2,
         "placement": [0, 1],
         "chains": 1,
         "slices": 1,
         "slicing": "causal",
         "update_every": null,
         "refuge": [],
         "orders": [
          ["0F0", "0F1", "0B0", "0B1"],
          ["1F0", "1B0", "1F1", "1B1"]
         ]
        }
        """)


def test_text_without_stages_or_head_is_one_stage_a_rank() -> None:
    assert text_format.loads("F0 F1 B0 B1\nF0 B0 F1 B1\n") == build("1f1b", ranks=2, microbatches=2)


def test_text_may_have_comments_and_empty_lines() -> None:
    text = "\n# mine\n  0F0  0B0   # first\n\n1F0 1B0\n"
    assert text_format.loads(text).orders == [["0F0", "0B0"], ["1F0", "1B0"]]


def _document(**changes: Any) -> str:
    document = json.loads(json_format.dumps(build("1f1b", ranks=2, microbatches=2)))
    for key, value in changes.items():
        document[key] = value
        if value is ...:
            del document[key]
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.json, line 1: is not JSON: Expecting value"),
        ("[" * 100_000, "x.json: is nested too deep to be a schedule"),
        ('{"format": "pipesim-sch', "x.json, line 1: is not JSON: Unterminated string starting at"),
        ("[1, 2]", "x.json: expected an object with format, version, name"),
        (_document(format="chrome"), "x.json, field format: expected 'pipesim-schedule', found 'chrome'"),
        (_document(version=2), "x.json, field version: expected 1, all that this pipesim reads, found 2"),
        (_document(colour="red"), "x.json: has no field 'colour' in version 1"),
        (_document(microbatches=...), "x.json, field microbatches: expected a whole number of at least 1, found None"),
        (_document(microbatches=True), "field microbatches: expected a whole number of at least 1, found True"),
        (_document(microbatches=-3), "field microbatches: expected a whole number of at least 1, found -3"),
        (_document(microbatches=10**9), "1000000000 microbatches on 2 stages need at least 2000000000 actions"),
        (_document(ranks=3), "x.json: ranks is 3, but orders has 2 lists"),
        (_document(placement=[0, 5]), "x.json: stage 1 is on none of the 2 ranks"),
        (_document(placement=[0, 0]), "x.json: no stage is placed on rank 1"),
        (_document(placement="linear"), "field placement: expected a list of whole numbers, found 'linear'"),
        (_document(placement=[0, 1, 0], chains=2), "x.json: 3 stages are not 2 replicas of one model"),
        (_document(slicing="random"), "field slicing: expected causal or autoregressive, found 'random'"),
        (_document(refuge=[9]), "field refuge: expected nothing, or for each of 2 ranks another rank or null"),
        (_document(orders=[]), "x.json, field orders: expected a list of actions for each rank, found []"),
        (_document(orders=[[]], ranks=...), "x.json: rank 0 has no action"),
        (_document(orders=[["0F0"], []]), "x.json: rank 1 has no action"),
        (_document(orders=[["0F0", 7], ["1F0"]]), 'x.json, rank 0: 7 is not a text such as "2F0"'),
        (_document(orders=[["0F0", "zero"], ["1F0"]]), "x.json, rank 0, action 2: 'zero' is not an action"),
        (_document(orders=[["0F0"], ["999999999F0"]]), "stage 999999999 need at least 1000000000 actions"),
        (_document(name="a\nb"), "field name: expected a short text"),
    ],
)
def test_json_that_is_no_schedule(text: str, message: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        json_format.loads(text, "x.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.txt: no rank has any action"),
        ("F0 G1\n", "x.txt, rank 0, action 2: 'G1' is not an action"),
        ("# slices: many\nF0\n", "x.txt, slices: expected a whole number of at least 1, found 'many'"),
        ("# placement: zero\nF0\n", "x.txt, placement: expected the rank of each stage, found 'zero'"),
        ("# slicing: thin\nF0\n", "x.txt, slicing: expected causal or autoregressive, found 'thin'"),
        ("# refuge: 7\nF0\n", "x.txt, refuge: expected a rank or host for each of 1 ranks, found '7'"),
        ("F0 B999999999\n", "1000000000 microbatches on 1 stages need at least 1000000000 actions"),
    ],
)
def test_text_that_is_no_schedule(text: str, message: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        text_format.loads(text, "x.txt")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.csv: no rank has any action"),
        ("0F0,,0F1\n,,\n1F0,1F1\n", "x.csv: rank 1 has no action"),
        ("0F0,0QQ1\n", "x.csv, row 1, cell 2: '0QQ1' is not one of torch's actions"),
        ("0F\n", "x.csv, row 1, cell 1: '0F' is not one of torch's actions"),
        ("0F0,0REDUCE_GRAD3\n", "cell 2: '0REDUCE_GRAD3'"),
        ("(0F0;0UNSHARD)OVERLAP_F_B\n", "cell 1: '(0F0;0UNSHARD)OVERLAP_F_B'"),
        ("(0F0;0B0\n", "cell 1: '(0F0;0B0'"),
        ('0F0,"0F1\n', "x.csv: is not CSV: unexpected end of data"),
    ],
)
def test_csv_that_is_no_schedule(text: str, message: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        torch_csv.loads(text, "x.csv")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["interleaved", "dualpipe-v", "dualpipe", "seq1f1b"])
@given(data=st.data())
def test_damaged_files_are_refused_or_checked_never_a_crash(name: str, data: st.DataObject) -> None:
    """Cut, swap and insert bytes: whatever is left is read and checked, or refused in a sentence of ours."""
    schedule = _schedule(name)
    kinds = [(json_format.dumps, json_format.loads), (text_format.dumps, text_format.loads)]
    if name in ("interleaved", "dualpipe-v"):
        kinds += [(torch_csv.dumps, torch_csv.loads), (torch_csv.dumps_with_transfers, torch_csv.loads)]
    write, read = data.draw(st.sampled_from(kinds))
    text = write(schedule)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    damaged = text[:start] + data.draw(st.text('0189FBIW{}[]();&.,"# \nxé', max_size=4)) + text[end:]
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    with suppress(PipesimError):
        check(read(damaged, "damaged"))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("dualpipe", "two replicas of a stage"),
        ("seq1f1b", "sequence slices"),
        ("bpipe", "activation moves"),
        ("pipedream", "optimizer steps between microbatches"),
    ],
)
def test_torch_has_no_words_for_everything(name: str, what: str, tmp_path: Path) -> None:
    schedule = build(name, ranks=6, microbatches=12)
    with pytest.raises(CannotExpress) as caught:
        write_schedule(schedule, tmp_path / "a.csv")
    assert str(caught.value) == f"torch's .csv cannot express {what}; write a .json or .txt file instead"
    assert not list(tmp_path.iterdir())


def test_files_are_known_by_their_suffix(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match=r"a schedule is a \.json, \.csv, \.txt file"):
        read_schedule(tmp_path / "a.yaml")
    with pytest.raises(CannotWrite, match=r"a schedule is a \.json, \.csv, \.txt file"):
        write_schedule(_schedule("1f1b"), tmp_path / "a.yaml")
    with pytest.raises(CannotWrite, match=r"only a \.csv file holds transfers"):
        write_schedule(_schedule("1f1b"), tmp_path / "a.txt", transfers=True)
    write_schedule(_schedule("1f1b"), tmp_path / "a.txt")
    assert read_program(tmp_path / "a.txt") is None
