"""Every family by name."""

from __future__ import annotations

from pipesim.schedules.families_one_way import ONE_WAY
from pipesim.schedules.families_special import SPECIAL
from pipesim.schedules.families_two_way import TWO_WAY
from pipesim.schedules.family import Family, Form
from pipesim.schedules.gpipe import gpipe
from pipesim.schedules.interleaved import interleaved
from pipesim.schedules.one_f_one_b import one_f_one_b

_FLUSH = Form("(m+p-1)(F+I+W)", lambda x: (x.m + x.p - 1) * x.work)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "gpipe",
            gpipe,
            "Huang et al. 2019, arXiv 1811.06965",
            makespan=_FLUSH,
            latency=Form("2(p-1)C", lambda x: 2 * (x.p - 1) * x.C),
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
            "interleaved",
            interleaved,
            "Narayanan et al. 2021, arXiv 2104.04473, section 2.2",
            rule="every group of N microbatches has at least min(p, m): m a multiple of p, or N chosen so",
            makespan=Form(
                "m(F+I+W) + (p-1)(F+I+W)/v",
                lambda x: x.m * x.work + (x.p - 1) * x.work / x.v,
                lambda x: x.m % x.p == 0,
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
        *ONE_WAY,
        *TWO_WAY,
        *SPECIAL,
    )
}
