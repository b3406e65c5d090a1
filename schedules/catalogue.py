"""Every family by name."""

from __future__ import annotations

from pipesim.schedules.families_one_way import ONE_WAY
from pipesim.schedules.families_special import SPECIAL
from pipesim.schedules.families_two_way import TWO_WAY
from pipesim.schedules.families_vee import VEE
from pipesim.schedules.family import Family

FAMILIES: dict[str, Family] = {family.name: family for family in (*ONE_WAY, *VEE, *TWO_WAY, *SPECIAL)}
