"""What is known of the families that run in two directions, or in waves."""

from __future__ import annotations

from pipesim.schedules.chimera import chimera
from pipesim.schedules.dualpipe import dualpipe, dualpipe_v
from pipesim.schedules.family import Family, Form, Setting
from pipesim.schedules.gems import gems
from pipesim.schedules.hanayo import hanayo


def _whole_units(x: Setting) -> bool:
    """Chimera's and Hanayo's slots are full, and their timetable is the run itself."""
    return x.m % x.p == 0 and x.F == x.I + x.W


def _chimera_peak(x: Setting, r: int) -> float:
    unit = min(x.m, x.p)
    down = r < x.p / 2
    entered = (unit + 1) // 2 if down else unit // 2
    return min(unit, entered + 1 + min(r, x.p - 1 - r))


def _hanayo_peak(x: Setting, r: int) -> float:
    unit = min(x.m, x.p)
    return ((x.v - 1) * unit + 1 + min(r, unit - 1)) / x.v


def _pairs_fit(x: Setting) -> bool:
    return x.F == x.I and x.W <= x.F


def _pairs(x: Setting) -> float:
    """FB + (I+W) - 3W, with pairs that take as long as their two parts."""
    return x.work + x.I - 2 * x.W


TWO_WAY = (
    Family(
        "chimera",
        chimera,
        "Li, Hoefler 2021, arXiv 2107.06925",
        rule="p even; half of the pipes divides p/2",
        makespan=Form("(2m+p-2)F", lambda x: (2 * x.m + x.p - 2) * x.F, _whole_units, "p divides m, F = I+W, 2 pipes"),
        peak_formula="with u = min(m, p): min(u, ⌈u/2⌉+1+r), on the second half of the ranks min(u, ⌊u/2⌋+p-r)",
        peak=_chimera_peak,
    ),
    Family(
        "gems",
        gems,
        "Jain et al. 2020, SC20, doi 10.1109/SC41405.2020.00049",
        makespan=Form(
            "p(F+I+W) + (m-1)(min(F, I+W) + p·max(F, I+W))",
            lambda x: x.p * x.work + (x.m - 1) * (min(x.F, x.I + x.W) + x.p * max(x.F, x.I + x.W)),
        ),
        latency=Form("(m+1)(p-1)C", lambda x: (x.m + 1) * (x.p - 1) * x.C),
        peak_formula="1",
        peak=lambda x, r: 1,
    ),
    Family(
        "dualpipe",
        dualpipe,
        "DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1",
        rule="p and m even, m ≥ 2p",
        makespan=Form(
            "m(F+I+W) + (p/2-1)(FB + I - 2W), FB = F+I+W",
            lambda x: x.m * x.work + (x.p / 2 - 1) * _pairs(x),
            _pairs_fit,
            "W ≤ F = I, nothing gained by pairing",
        ),
        peak_formula="p+1",
        peak=lambda x, r: x.p + 1,
    ),
    Family(
        "dualpipe-v",
        dualpipe_v,
        "DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe",
        rule="m ≥ 2p",
        makespan=Form(
            "m(F+I+W) + (p-1)(FB + I - 2W)/2, FB = F+I+W",
            lambda x: x.m * x.work + (x.p - 1) * _pairs(x) / 2,
            _pairs_fit,
            "W ≤ F = I, nothing gained by pairing",
        ),
        peak_formula="p+1/2",
        peak=lambda x, r: x.p + 0.5,
    ),
    Family(
        "hanayo",
        hanayo,
        "Liu et al. 2023, arXiv 2308.15762",
        rule="an even number of stages a rank",
        makespan=Form(
            "m(F+I+W) + (p-1)(F+I+W)/v",
            lambda x: x.m * x.work + (x.p - 1) * x.work / x.v,
            _whole_units,
            "p divides m, F = I+W",
        ),
        peak_formula="with u = min(m, p): ((v-1)u + 1 + min(r, u-1))/v",
        peak=_hanayo_peak,
    ),
)
