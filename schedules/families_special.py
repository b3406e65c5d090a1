"""What is known of the families with slices, activation moves, asynchronous steps, or no training at all."""

from __future__ import annotations

from pipesim.schedules.bpipe import activation_bound, bpipe
from pipesim.schedules.family import Family, Form, Setting
from pipesim.schedules.inference import decode, forward_only
from pipesim.schedules.pipedream import pipedream, pipedream_2bw
from pipesim.schedules.slices import seq1f1b, terapipe

_FLUSH = Form("(m+p-1)(F+I+W)", lambda x: (x.m + x.p - 1) * x.work)


def _round_trip(x: Setting, latency: float) -> float:
    """Seconds between two tokens of one group: ranks wait for it, or it waits for the other groups."""
    hop = latency if x.p > 1 else 0.0
    return max(x.m * x.F / x.s, x.p * (x.F / x.s + hop))


def _decode_latency(x: Setting) -> float:
    return (x.s - 1) * (_round_trip(x, x.C) - _round_trip(x, 0.0)) + (x.p - 1) * x.C


SPECIAL = (
    Family(
        "terapipe",
        terapipe,
        "Li et al. 2021, arXiv 2102.07988",
        makespan=Form("(ms+p-1)(F+I+W)/s", lambda x: (x.m * x.s + x.p - 1) * x.work / x.s),
        latency=Form("2(p-1)C", lambda x: 2 * (x.p - 1) * x.C),
        peak_formula="m",
        peak=lambda x, r: x.m,
    ),
    Family(
        "seq1f1b",
        seq1f1b,
        "Sun et al. 2024, arXiv 2406.03488",
        makespan=Form("m(F+I+W) + (p-1)(F+I+W)/s", lambda x: x.m * x.work + (x.p - 1) * x.work / x.s),
        peak_formula="min((s+p-1-r)/s, m)",
        peak=lambda x, r: min((x.s + x.p - 1 - r) / x.s, x.m),
    ),
    Family(
        "bpipe",
        bpipe,
        "Kim et al. 2023, ICML, PMLR 202:16639",
        makespan=_FLUSH,
        peak_formula="min(p-r, m, ⌈(p+2)/2⌉), those of the partner not counted",
        peak=lambda x, r: min(x.p - r, x.m, activation_bound(x.p)),
    ),
    Family(
        "pipedream",
        pipedream,
        "Narayanan et al. 2019, SOSP, doi 10.1145/3341301.3359646",
        makespan=_FLUSH,
        peak_formula="min(p-r, m)",
        peak=lambda x, r: min(x.p - r, x.m),
        versions=lambda x, r: min(x.p - r, x.m, max(x.m - x.p + r, 0) + 2),  # p-r in a run long enough
        staleness=lambda x, r: min(x.p - r, x.m) - 1,
        synchronous=False,
    ),
    Family(
        "pipedream-2bw",
        pipedream_2bw,
        "Narayanan et al. 2021, arXiv 2006.09503",
        rule="a step every n ≥ p microbatches, m a multiple of n",
        makespan=_FLUSH,
        peak_formula="min(p-r, m)",
        peak=lambda x, r: min(x.p - r, x.m),
        versions=lambda x, r: min(2, x.n, x.m // x.n),
        staleness=lambda x, r: min(2, x.n, x.m // x.n) - 1,
        synchronous=False,
    ),
    Family(
        "forward-only",
        forward_only,
        "GPipe's forwards; Huang et al. 2019, arXiv 1811.06965",
        makespan=Form("(m+p-1)F", lambda x: (x.m + x.p - 1) * x.F),
        latency=Form("(p-1)C", lambda x: (x.p - 1) * x.C),
        peak_formula="1",
        peak=lambda x, r: 1,
        trains=False,
    ),
    Family(
        "decode",
        decode,
        "Pope et al. 2022, arXiv 2211.05102",
        makespan=Form(
            "((s-1)·max(m, p) + m+p-1)F/s",
            lambda x: ((x.s - 1) * max(x.m, x.p) + x.m + x.p - 1) * x.F / x.s,
        ),
        latency=Form("(s-1)·[max(mF/s, p(F/s+C)) - max(m, p)F/s] + (p-1)C", _decode_latency),
        peak_formula="1/s",
        peak=lambda x, r: 1 / x.s,
        trains=False,
    ),
)
