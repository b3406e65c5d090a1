"""What is known of the families with two stages a rank in a V."""

from __future__ import annotations

from pipesim.schedules.family import Family, Form, Setting
from pipesim.schedules.one_f_one_b_v import one_f_one_b_v
from pipesim.schedules.v_auto import v_auto
from pipesim.schedules.v_half import v_half
from pipesim.schedules.v_min import v_min
from pipesim.schedules.zb_v import zb_v

_CONTROLLABLE = "Qi et al. 2024, arXiv 2405.15362"


def _equal(x: Setting) -> bool:
    return x.F == x.I == x.W


def _equal_and_long(x: Setting) -> bool:
    return _equal(x) and x.m >= 2 * x.p and x.p >= 3


VEE = (
    Family(
        "zb-v",
        zb_v,
        "Qi et al. 2023, arXiv 2401.10241, section 6",
        makespan=Form(
            "m(F+I+W) + (p-1)F/2",
            lambda x: x.m * x.work + (x.p - 1) * x.F / 2,
            lambda x: _equal(x) and x.m >= 2 * x.p - 1,
            "F = I = W, m ≥ 2p-1",
        ),
        span=Form(
            "m(F+I+W)",
            lambda x: x.m * x.work,
            lambda x: _equal(x) and x.m >= 2 * x.p - 1,
            "F = I = W, m ≥ 2p-1",
        ),
        peak_formula="min(p, (m+1+r)/2, m)",
        peak=lambda x, r: min(x.p, (x.m + 1 + r) / 2, x.m),
    ),
    Family(
        "v-half",
        v_half,
        _CONTROLLABLE,
        makespan=Form(
            "(3m + (3p-7)/2)F for even p, (3m + (3p-4)/2)F for odd p",
            lambda x: (3 * x.m + (3 * x.p - (4 if x.p % 2 else 7)) / 2) * x.F,
            _equal_and_long,
            "F = I = W, m ≥ 2p, p ≥ 3",
        ),
        peak_formula="⌊(p+2)/2⌋ for m > p",
        peak=lambda x, r: (x.p + 2) // 2,
        peak_holds=lambda x: x.m > x.p,
    ),
    Family(
        "v-min",
        v_min,
        _CONTROLLABLE,
        makespan=Form(
            "(3m + (4p-7)/2)F where 3 divides p, else (3m + (4p-5)/2)F",
            lambda x: (3 * x.m + (4 * x.p - (5 if x.p % 3 else 7)) / 2) * x.F,
            _equal_and_long,
            "F = I = W, m ≥ 2p, p ≥ 3",
        ),
        peak_formula="⌊(p+4)/3⌋ for m ≥ p; ½ less on rank 0 where 3 divides p+1",
        peak=lambda x, r: (x.p + 4) // 3 - (0.5 if x.p % 3 == 2 and r == 0 else 0.0),
        peak_holds=lambda x: x.m >= x.p,
    ),
    Family("v-auto", v_auto, f"after {_CONTROLLABLE}", peak_formula="at most memory_limit (p)"),
    Family(
        "1f1b-v",
        one_f_one_b_v,
        _CONTROLLABLE,
        makespan=Form(
            "(3m + (5p-5)/2)F for p = 1, 4, 7 …, (3m + (5p-7)/2)F for p = 5, 8, 11 …",
            lambda x: (3 * x.m + (5 * x.p - (5 if x.p % 3 == 1 else 7)) / 2) * x.F,
            lambda x: _equal(x) and x.m >= 2 * x.p and x.p % 3 != 0 and x.p != 2,
            "F = I = W, m ≥ 2p, 3 does not divide p, p ≠ 2",
        ),
        peak_formula="⌊2p/3⌋ + 1 for m ≥ 2p",
        peak=lambda x, r: 2 * x.p // 3 + 1,
        peak_holds=lambda x: x.m >= 2 * x.p,
    ),
)
