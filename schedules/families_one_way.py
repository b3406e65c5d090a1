"""What is known of the families in which all microbatches pass the ranks in the same direction."""

from __future__ import annotations

from pipesim.schedules.eager_1f1b import eager_1f1b
from pipesim.schedules.family import Family, Form, Setting
from pipesim.schedules.gis import gis, gis_h
from pipesim.schedules.gpipe import gpipe
from pipesim.schedules.interleaved import interleaved
from pipesim.schedules.interleaved_zb import interleaved_zb
from pipesim.schedules.looped_bfs import looped_bfs
from pipesim.schedules.one_f_one_b import one_f_one_b
from pipesim.schedules.zb_auto import zb_auto
from pipesim.schedules.zb_h1 import zb_h1
from pipesim.schedules.zb_h2 import zb_h2

_ZERO_BUBBLE = "Qi et al. 2023, arXiv 2401.10241"
_OFFLOAD = "Wan et al. 2025, arXiv 2503.01328"
_GROUPS = "every group of N microbatches has at least min(p, m): m a multiple of p, or N chosen so"

_FLUSH = Form("(m+p-1)(F+I+W)", lambda x: (x.m + x.p - 1) * x.work)
_FILL_AND_DRAIN = Form("2(p-1)C", lambda x: 2 * (x.p - 1) * x.C)


def _short_weights(x: Setting) -> bool:
    return min(x.F, x.I) >= x.W and x.m >= x.p


def _whole_rounds(x: Setting) -> bool:
    return x.m % x.p == 0


def _messages_pass(x: Setting) -> bool:
    """What a rank sent around is back before it has done all microbatches on a stage."""
    return x.m > x.p and x.m * min(x.F, x.I + x.W) >= x.p * (min(x.F, x.I + x.W) + x.v * x.C)


ONE_WAY = (
    Family(
        "gpipe",
        gpipe,
        "Huang et al. 2019, arXiv 1811.06965",
        makespan=_FLUSH,
        latency=_FILL_AND_DRAIN,
        peak_formula="m",
        peak=lambda x, r: x.m,
    ),
    Family(
        "1f1b",
        one_f_one_b,
        "Narayanan et al. 2021, arXiv 2104.04473; PipeDream-flush, DAPPLE",
        makespan=_FLUSH,
        latency=Form(
            "[2m(p-1)/p + 2(p-2)]C",
            lambda x: (2 * x.m * (x.p - 1) / x.p + 2 * (x.p - 2)) * x.C,
            lambda x: x.m % x.p == 0 and x.m > x.p > 2,
            "p divides m, m > p > 2",
        ),
        peak_formula="min(p-r, m)",
        peak=lambda x, r: min(x.p - r, x.m),
    ),
    Family(
        "eager-1f1b",
        eager_1f1b,
        "Zhuang et al. 2022, arXiv 2211.05322; alpa",
        makespan=_FLUSH,
        latency=_FILL_AND_DRAIN,
        peak_formula="min(2(p-r)-1, m)",
        peak=lambda x, r: min(2 * (x.p - r) - 1, x.m),
    ),
    Family(
        "interleaved",
        interleaved,
        "Narayanan et al. 2021, arXiv 2104.04473, section 2.2",
        rule=_GROUPS,
        makespan=Form(
            "m(F+I+W) + (p-1)(F+I+W)/v",
            lambda x: x.m * x.work + (x.p - 1) * x.work / x.v,
            _whole_rounds,
            "p divides m",
        ),
        latency=Form(
            "2(vp-1)C",
            lambda x: 2 * (x.v * x.p - 1) * x.C,
            lambda x: x.m % x.p == 0 and x.m > x.p,
            "p divides m, m > p",
        ),
        peak_formula="min(((v-1)N + 2(p-1-r) + 1)/v, m)",
        peak=lambda x, r: min(((x.v - 1) * x.n + 2 * (x.p - 1 - r) + 1) / x.v, x.m),
    ),
    Family(
        "looped-bfs",
        looped_bfs,
        "Lamy-Poirier 2022, arXiv 2211.05953",
        makespan=Form(
            "m(F+I+W) + (p-1)(F+I+W)/v",
            lambda x: x.m * x.work + (x.p - 1) * x.work / x.v,
            lambda x: x.m >= x.p,
            "m ≥ p",
        ),
        latency=Form(
            _FILL_AND_DRAIN.formula, _FILL_AND_DRAIN.value, _messages_pass, "m > p, m ≥ p(1 + vC/min(F, I+W))"
        ),
        peak_formula="m",
        peak=lambda x, r: x.m,
    ),
    Family(
        "zb-h1",
        zb_h1,
        f"{_ZERO_BUBBLE}, section 2.1",
        makespan=Form(
            "m(F+I+W) + (p-1)(F+I-W)",
            lambda x: x.m * x.work + (x.p - 1) * (x.F + x.I - x.W),
            _short_weights,
            "W ≤ min(F, I), m ≥ p",
        ),
        peak_formula="min(p, m)",
        peak=lambda x, r: min(x.p, x.m),
    ),
    Family(
        "zb-h2",
        zb_h2,
        f"{_ZERO_BUBBLE}, section 2.2",
        span=Form(
            "m(F+I+W) + (p-1)(F+I-2W)",
            lambda x: x.m * x.work + (x.p - 1) * (x.F + x.I - 2 * x.W),
            lambda x: _short_weights(x) and x.m >= 2 * x.p - 1,
            "W ≤ min(F, I), m ≥ 2p-1",
        ),
        peak_formula="min(2p-1, m)",
        peak=lambda x, r: min(2 * x.p - 1, x.m),
    ),
    Family("zb-auto", zb_auto, f"{_ZERO_BUBBLE}, section 3", peak_formula="at most memory_limit (2p)"),
    Family(
        "interleaved-zb",
        interleaved_zb,
        f"{_ZERO_BUBBLE}, on interleaved stages as in torch",
        rule=_GROUPS,
        makespan=Form(
            "m(F+I+W) + (p-1)(F+I-W)/v",
            lambda x: x.m * x.work + (x.p - 1) * (x.F + x.I - x.W) / x.v,
            lambda x: _whole_rounds(x) and _short_weights(x),
            "p divides m, W ≤ min(F, I)",
        ),
        peak_formula="min(((v-1)N + p)/v, m)",
        peak=lambda x, r: min(((x.v - 1) * x.n + x.p) / x.v, x.m),
    ),
    Family(
        "gis",
        gis,
        _OFFLOAD,
        rule="N at least ⌊p/2⌋",
        makespan=Form(
            "m(F+I+W) + (p-1)(F+I)/v",
            lambda x: x.m * x.work + (x.p - 1) * (x.F + x.I) / x.v,
            lambda x: _whole_rounds(x) and x.n == x.p,
            "p divides m, N = p",
        ),
        peak_formula="min(((v-1)N + p-r)/v, m) for N divides m",
        peak=lambda x, r: min(((x.v - 1) * x.n + x.p - r) / x.v, x.m),
        peak_holds=lambda x: x.m % x.n == 0,
    ),
    Family(
        "gis-h",
        gis_h,
        _OFFLOAD,
        makespan=Form(
            "m(F+I+W) + [2(p-1) + (v-1)⌊p/2⌋]F/v",
            lambda x: x.m * x.work + (2 * (x.p - 1) + (x.v - 1) * (x.p // 2)) * x.F / x.v,
            lambda x: x.F == x.I == x.W and x.m % -(-x.p // 2) == 0 and x.m > x.p,
            "F = I = W, ⌈p/2⌉ divides m, m > p",
        ),
        peak_formula="min(((v-1)⌈p/2⌉ + p-r)/v, m) for ⌈p/2⌉ divides m",
        peak=lambda x, r: min(((x.v - 1) * -(-x.p // 2) + x.p - r) / x.v, x.m),
        peak_holds=lambda x: x.m % -(-x.p // 2) == 0,
    ),
)
