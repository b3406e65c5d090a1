"""Traces of torch.profiler, one a rank, read as a timeline: a real run's bubbles by the same figures.

Read are the ranges that torch.distributed.pipelining records (`PP:2F0`, `PP:1SEND_F0`, `Forward 3`), ranges named
as our actions (`2F0`), and the optimizer's step. Where a GPU ran them, its times count rather than the host's.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.errors import PipesimError
from pipesim.files import CannotRead, read_text
from pipesim.ir.action import Kind
from pipesim.ir.formats import torch_csv
from pipesim.ir.lower import lower
from pipesim.ir.program import Program
from pipesim.timeline import Timeline

_RANGE = re.compile(
    r"(?:PP:)?(?P<text>\d+(?:[FBIW]|SEND_[FB]|RECV_[FB])\d+|\(\d+[FBIW]\d+;\d+[FBIW]\d+\)OVERLAP_F_B|\d+REDUCE_GRAD)"
    r"|(?P<word>Forward|Backward) (?P<microbatch>\d+)"
    r"|(?P<step>Optimizer\.step#.*)"
)
_CATEGORIES = ("user_annotation", "gpu_user_annotation", "cpu_op")
_MOST_BYTES = 1 << 30
_LONGEST_S = 1e12  # clocks count from 1970 or from the start of the machine


@dataclass(eq=False)
class BadTrace(PipesimError):
    """A file that is no trace of a pipeline."""

    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path} is not a torch.profiler trace of a pipeline: {self.reason}; "
            "export one a rank with prof.export_chrome_trace('rank0.json')"
        )


@dataclass(frozen=True)
class _Span:
    start: float  # seconds
    end: float


@dataclass(frozen=True)
class _Rank:
    """The ranges of one rank: every occurrence of a text, one a step."""

    rank: int
    path: str
    spans: Mapping[str, list[_Span]]
    facts: dict[str, Any] = field(default_factory=dict)


def read_profiler_traces(
    paths: Sequence[str | os.PathLike[str]], *, step: int = -1, name: str = "imported"
) -> Timeline:
    """One step of all ranks as a timeline; its zero is the first action's start.

    paths: `.json` or `.json.gz`, one a rank, in any order. step: which of the recorded steps, the last by default.
    Clocks of ranks are taken as they are; where a message would arrive before it was sent, later ranks are put off,
    and `facts` says by how much. Raises CannotRead, BadTrace, MalformedFile, BrokenSchedule.
    """
    ranks = sorted((_read(path, place) for place, path in enumerate(paths)), key=lambda one: one.rank)
    if [one.rank for one in ranks] != list(range(len(ranks))):
        numbers = ", ".join(str(one.rank) for one in ranks)
        raise BadTrace(
            ", ".join(one.path for one in ranks), f"they are of ranks {numbers}, not of 0 … {len(ranks) - 1}"
        )
    chosen = [_one_step(one, step) for one in ranks]
    text = "\n".join(",".join(_row(spans)) for spans in chosen) + "\n"
    program = torch_csv.loads_program(text, name, comm="blocking") or lower(torch_csv.loads(text, name))
    program = replace(program, schedule=program.schedule.renamed(name))
    start, end = _times(program, chosen)
    messages = _messages(program)
    shift = _shifts(program, messages, end)
    start, end = start + shift[program.rank], end + shift[program.rank]
    # torch waits for a message inside the range of the action that uses it: that is no work.
    np.maximum.at(start, messages.used, end[messages.made])
    start = np.minimum(start, end)
    first = float(start.min(initial=np.inf))
    facts = ranks[0].facts | {"clock_shift_s": shift.tolist(), "step": step}
    return Timeline(program, start - first, end - first, source="imported", facts=facts)


def _read(path: str | os.PathLike[str], place: int) -> _Rank:
    try:
        content = json.loads(_text(Path(path)))
        events = content["traceEvents"] if isinstance(content, dict) else content
        base = float(content.get("baseTimeNanoseconds", 0)) * 1e-9 if isinstance(content, dict) else 0.0
        about = content.get("distributedInfo", {}) if isinstance(content, dict) else {}
        rank = int(about.get("rank", place))
        spans = _spans(events, rank, base)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise BadTrace(str(path), f"{type(error).__name__}: {error}") from None
    if not spans:
        raise BadTrace(str(path), "it has no ranges such as PP:0F0")
    facts = {key: about[key] for key in ("backend", "world_size") if key in about}
    return _Rank(rank, str(path), spans, facts)


def _text(path: Path) -> str:
    if path.suffix != ".gz":
        return read_text(path, at_most_bytes=_MOST_BYTES)
    try:
        with gzip.open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CannotRead(str(path), str(error)) from None
    if len(data) > _MOST_BYTES:
        raise CannotRead(str(path), f"longer than {_MOST_BYTES} bytes")
    return data.decode("utf-8-sig")


def _spans(events: Iterable[Any], rank: int, base: float) -> dict[str, list[_Span]]:
    """All ranges by their text, in order; those of the GPU where there are any."""
    found: dict[str, dict[str, list[_Span]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in _CATEGORIES:
            continue
        match = _RANGE.fullmatch(event.get("name", ""))
        if match:
            start, seconds = base + float(event["ts"]) * 1e-6, float(event["dur"]) * 1e-6
            if not (abs(start) < _LONGEST_S and 0 <= seconds < _LONGEST_S):
                raise ValueError(f"{event['name']!r:.40} begins at {start:g} s and takes {seconds:g} s")
            found[event["cat"]][_said(match, rank)].append(_Span(start, start + seconds))
    host = found["user_annotation"] or found["cpu_op"]
    merged = dict(host) | dict(found["gpu_user_annotation"])
    return {text: sorted(spans, key=lambda span: span.start) for text, spans in merged.items()}


def _said(match: re.Match[str], rank: int) -> str:
    """As in torch's schedule files; `Forward 3` is of the rank's only stage."""
    if match["step"]:
        return "STEP"
    return match["text"] or f"{rank}{match['word'][0]}{match['microbatch']}"


def _one_step(one: _Rank, step: int) -> dict[str, _Span]:
    """The ranges of one of the steps recorded."""
    actions = [text for text in one.spans if text != "STEP"]
    counts = {len(one.spans[text]) for text in actions}
    if not actions:
        raise BadTrace(one.path, "it has an optimizer step, but no ranges such as PP:0F0")
    if len(counts) > 1:
        odd = min(actions, key=lambda text: len(one.spans[text]))
        raise BadTrace(one.path, f"{odd} was recorded {len(one.spans[odd])} times, others {max(counts)} times")
    steps = counts.pop()
    if not -steps <= step < steps:
        raise BadTrace(one.path, f"it holds {steps} steps, step {step} is none of them")
    chosen = {text: one.spans[text][step] for text in actions}
    last = max(span.end for span in chosen.values())
    after = [span for span in one.spans.get("STEP", ()) if span.start >= last]
    if after:
        chosen["STEP"] = after[0]
    return chosen


def _row(spans: Mapping[str, _Span]) -> list[str]:
    """A rank's texts in the order of their starts."""
    return sorted((text for text in spans if text != "STEP"), key=lambda text: spans[text].start)


def _times(program: Program, chosen: Sequence[Mapping[str, _Span]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start and end of each operation; what was not recorded takes no time, right after the one before it."""
    start, end = np.zeros(len(program)), np.zeros(len(program))
    for rank, spans in enumerate(chosen):
        by_text = dict(_apart(spans))
        now = min(span.start for span in spans.values())
        for op in program.row(rank):
            span = by_text.get(program.text(op), _Span(now, now))
            start[op], end[op] = span.start, span.end
            now = max(now, span.end)
    return start, end


def _apart(spans: Mapping[str, _Span]) -> Iterable[tuple[str, _Span]]:
    """Both actions of a pair have the pair's times."""
    for text, span in spans.items():
        if text.startswith("("):
            yield from ((part, span) for part in text[1 : text.index(")")].split(";"))
        else:
            yield text, span


@dataclass(frozen=True, eq=False)
class _Messages:
    """For each message the action that made it and the one that uses it."""

    made: NDArray[np.integer]
    used: NDArray[np.integer]


def _messages(program: Program) -> _Messages:
    needing = np.repeat(np.arange(len(program)), np.diff(program.need_offsets))
    sends = program.ops.kind[needing] == Kind.SEND
    user = np.full(len(program), -1)
    received = program.ops.kind[program.need] == Kind.RECV
    user[program.need[received]] = needing[received]
    made, used = program.need[sends], user[program.match[needing[sends]]]
    return _Messages(made[used >= 0], used[used >= 0])


def _shifts(program: Program, messages: _Messages, end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds by which each rank's clock is put off so that no message is used up before it was made.

    Clocks of one machine need none; between machines they are off by milliseconds. Rank 0 stands still.
    """
    giver, taker = program.rank[messages.made], program.rank[messages.used]
    lag = end[messages.made] - end[messages.used]
    shift = np.zeros(program.ranks)
    for _ in range(program.ranks):
        needed = shift[giver] + lag
        if not (needed > shift[taker]).any():
            break
        np.maximum.at(shift, taker, needed)
    moved: NDArray[np.float64] = shift - shift[0]
    return moved
