"""What is known of the families that keep 1F1B's idea and move forwards or weight gradients."""

from __future__ import annotations

from pipesim.schedules.eager_1f1b import eager_1f1b
from pipesim.schedules.family import Family, Form, Setting
from pipesim.schedules.gis import gis, gis_h
from pipesim.schedules.interleaved_zb import interleaved_zb
from pipesim.schedules.looped_bfs import looped_bfs
from pipesim.schedules.one_f_one_b_v import one_f_one_b_v
from pipesim.schedules.v_half import v_half
from pipesim.schedules.v_min import v_min
from pipesim.schedules.zb_h1 import zb_h1
from pipesim.schedules.zb_h2 import zb_h2
from pipesim.schedules.zb_v import zb_v

_ZERO_BUBBLE = "Qi et al. 2024, arXiv 2401.10241"
_BALANCED = "Qi et al. 2024, arXiv 2405.15362"
_OFFLOAD = "Wan et al. 2025, arXiv 2503.01328"


def _equal(x: Setting) -> bool:
    return x.F == x.I == x.W


def _equal_and_long(x: Setting) -> bool:
    """Unit times, and microbatches enough to reach the steady state."""
    return _equal(x) and x.m >= 2 * x.p and x.p >= 3


def _short_weights(x: Setting) -> bool:
    return min(x.F, x.I) >= x.W and x.m >= 2 * x.p - 1


def _whole_rounds(x: Setting) -> bool:
    return x.m % x.p == 0


_INTERLEAVED = Form("m(F+I+W) + (p-1)(F+I+W)/v", lambda x: x.m * x.work + (x.p - 1) * x.work / x.v)

ONE_WAY = (
    Family(
        "eager-1f1b",
        eager_1f1b,
        "Zhuang et al. 2023, arXiv 2211.05322 (alpa)",
        makespan=Form("(m+p-1)(F+I+W)", lambda x: (x.m + x.p - 1) * x.work),
        latency=Form("2(p-1)C", lambda x: 2 * (x.p - 1) * x.C),
        peak_formula="min(2(p-r)-1, m)",
        peak=lambda x, r: min(2 * (x.p - r) - 1, x.m),
    ),
    Family(
        "looped-bfs",
        looped_bfs,
        "Lamy-Poirier 2023, arXiv 2211.05953",
        makespan=Form(_INTERLEAVED.formula, _INTERLEAVED.value, lambda x: x.m >= x.p, "m ≥ p"),
        latency=Form("2(p-1)C", lambda x: 2 * (x.p - 1) * x.C, lambda x: x.m > x.p, "m > p"),
        peak_formula="m",
        peak=lambda x, r: x.m,
    ),
    Family(
        "zb-h1",
        zb_h1,
        _ZERO_BUBBLE,
        makespan=Form(
            "m(F+I+W) + (p-1)(F+I-W)",
            lambda x: x.m * x.work + (x.p - 1) * (x.F + x.I - x.W),
            _short_weights,
            "W ≤ min(F, I), m ≥ 2p-1",
        ),
        peak_formula="min(p, m)",
        peak=lambda x, r: min(x.p, x.m),
    ),
    Family("zb-h2", zb_h2, _ZERO_BUBBLE, peak_formula="2p-1 at most"),
    Family(
        "interleaved-zb",
        interleaved_zb,
        "Qi et al. 2024, arXiv 2401.10241, on interleaved stages (torch.distributed.pipelining)",
        rule="as interleaved",
        makespan=Form(
            "m(F+I+W) + (p-1)F/v",
            lambda x: x.m * x.work + (x.p - 1) * x.F / x.v,
            lambda x: _equal(x) and _whole_rounds(x),
            "F = I = W, p divides m",
        ),
    ),
    Family(
        "zb-v",
        zb_v,
        _ZERO_BUBBLE + ", section 6",
        makespan=Form(
            "m(F+I+W) + (p-1)F/2",
            lambda x: x.m * x.work + (x.p - 1) * x.F / 2,
            lambda x: _equal(x) and x.m >= 2 * x.p - 1,
            "F = I = W, m ≥ 2p-1",
        ),
        peak_formula="p at most",
    ),
    Family(
        "v-half",
        v_half,
        _BALANCED,
        makespan=Form(
            "(3m + (3p-7)/2)F for even p, (3m + (3p-4)/2)F for odd p",
            lambda x: (3 * x.m + (3 * x.p - (4 if x.p % 2 else 7)) / 2) * x.F,
            _equal_and_long,
            "F = I = W, m ≥ 2p, p ≥ 3",
        ),
        peak_formula="⌊(p+2)/2⌋ at most",
    ),
    Family(
        "v-min",
        v_min,
        _BALANCED,
        makespan=Form(
            "(3m + (4p-7)/2)F where 3 divides p, else (3m + (4p-5)/2)F",
            lambda x: (3 * x.m + (4 * x.p - (5 if x.p % 3 else 7)) / 2) * x.F,
            _equal_and_long,
            "F = I = W, m ≥ 2p, p ≥ 3",
        ),
        peak_formula="⌊(p+4)/3⌋ at most",
    ),
    Family("1f1b-v", one_f_one_b_v, _BALANCED),
    Family(
        "gis",
        gis,
        _OFFLOAD,
        rule="as interleaved",
        makespan=Form(
            "m(F+I+W) + (p-1)(F+I)/v",
            lambda x: x.m * x.work + (x.p - 1) * (x.F + x.I) / x.v,
            lambda x: _whole_rounds(x) and x.W <= x.I,
            "p divides m, N = p",
        ),
    ),
    Family("gis-h", gis_h, _OFFLOAD),
)
