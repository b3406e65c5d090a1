"""A page for each schedule family, and a gallery of all, made from the catalogue."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from docs.generate.charts import draw, simulated
from pipesim.ir.memory import peak_activations
from pipesim.ir.versions import versions_kept
from pipesim.metrics import Metrics
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.families_one_way import ONE_WAY
from pipesim.schedules.families_special import SPECIAL
from pipesim.schedules.families_two_way import TWO_WAY
from pipesim.schedules.families_vee import VEE
from pipesim.schedules.family import Family, Form, Setting
from pipesim.schedules.interleaved import group_size
from pipesim.schedules.lookup import build

GROUPS: dict[str, tuple[Family, ...]] = {
    "One direction": ONE_WAY,
    "Two stages a rank, in a V": VEE,
    "Two directions, and waves": TWO_WAY,
    "Slices, moved activations, asynchronous steps, inference": SPECIAL,
}
_COSTS = "F=1,I=1,W=1"
_LATENCY = 0.05  # seconds of a message where its effect is shown: short enough to hide where it can
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")
_DOI = re.compile(r"doi (10\.\S+?)(?=,|;|$)")
_GITHUB = re.compile(r"github\.com/[\w./-]+")
_ENTRY = re.compile(r"^((?:\w+, )*\w+): ", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """The small case that a page draws."""

    family: Family
    ranks: int = 4
    microbatches: int = 8
    slices: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.slices is None else {"slices": self.slices}

    @property
    def arguments(self) -> str:
        """As `pipesim simulate` takes them."""
        slices = "" if self.slices is None else f" --slices {self.slices}"
        return f"{self.family.name} -p {self.ranks} -m {self.microbatches}{slices}"

    @property
    def setting(self) -> Setting:
        """The numbers that closed forms are about, as the family fills in what was not given."""
        defaults = self.family.options | self.options
        size = 1
        if "group" in defaults:
            size = group_size(self.family.name, self.ranks, self.microbatches, None)
        if "update_every" in defaults:
            size = self.ranks
        virtual = defaults.get("virtual") or (2 if self.family in VEE else 1)
        return Setting(self.ranks, self.microbatches, virtual, size, defaults.get("slices") or 1, C=_LATENCY)

    def simulated(self, *, latency: float = 0.0) -> Metrics:
        """The figures of the example with F = I = W = 1 s; latency: seconds of a message."""
        return simulated(f"{self.arguments} --costs {_COSTS},C={latency}")[1]


def example(family: Family) -> Example:
    return Example(family, slices=4) if family.name == "decode" else Example(family)


def pages() -> dict[str, str]:
    """File below the documentation's folder -> its text."""
    found = {"families/index.md": gallery()}
    for family in FAMILIES.values():
        found[f"families/{family.name}.md"] = page(family)
        found[f"families/{family.name}.svg"] = draw(f"{example(family).arguments} --costs {_COSTS}").picture
    return found


def titles() -> list[tuple[str, list[tuple[str, str]]]]:
    """Groups of (title, file) for the navigation."""
    return [
        (group, [(family.name, f"families/{family.name}.md") for family in members])
        for group, members in GROUPS.items()
    ]


def gallery() -> str:
    parts = [
        "# Schedule families\n",
        f"{len(FAMILIES)} families, each made by one small function. The pictures: 4 ranks, 8 microbatches, equal "
        "times of forward (blue), input gradient (red) and weight gradient (green); a whole backward is orange, idle "
        "time grey. Closed forms speak of p ranks, m microbatches, v stages a rank, N microbatches a group, s slices, "
        "rank r; F, I, W are the times of a rank's whole share of a microbatch, C that of a message.\n",
        "`pipesim schedules` prints the same list.\n",
    ]
    for group, members in GROUPS.items():
        parts.append(f"## {group}\n")
        for family in members:
            parts += [
                f"### [{family.name}]({family.name}.md)\n",
                f"{family.summary}\n",
                f"[![{family.name}, p = 4, m = 8]({family.name}.svg)]({family.name}.md)\n",
            ]
    return "\n".join(parts)


def page(family: Family) -> str:
    """One family: what it does, its chart, rule, options, closed forms, commands, orders and source."""
    case = example(family)
    schedule = build(family.name, ranks=case.ranks, microbatches=case.microbatches, **case.options)
    metrics = case.simulated()
    peaks = [float(value) for value in peak_activations(schedule)]
    source = inspect.getsourcefile(family.build) or ""
    place = source[source.rindex("schedules/") :]
    parts = [
        f"# {family.name}\n",
        _prose(inspect.getdoc(family.build) or ""),
        f"\n<!-- chart: {case.arguments} --costs {_COSTS} -->\n",
        "| | |\n|---|---|",
        f"| paper | {paper(family.paper)} |",
        f"| needs | {family.rule} |",
        f"| placement | {schedule.placement.kind()} |",
        f"| steps | {_steps(family)} |",
        "",
        _options(family),
        "## Closed forms\n",
        _forms(case, metrics, peaks),
        "## Commands\n",
        "```sh",
        f"pipesim schedule {case.arguments} --grid",
        f"pipesim simulate {case.arguments} --costs {_COSTS} --out {family.name}.html",
        "```\n",
        "```python",
        "import pipesim\n",
        f"schedule = pipesim.build({_call(case)})",
        "print(schedule)",
        "```\n",
        "## Orders\n",
        "A line a rank; the example of the chart.\n",
        f"```text\n{schedule}\n```\n",
        f"## Source\n\n`{place}`\n",
        f"```python\n{inspect.getsource(family.build)}```\n",
    ]
    return "\n".join(parts)


def _call(case: Example) -> str:
    options = "".join(f", {name}={value}" for name, value in case.options.items())
    return f'"{case.family.name}", ranks={case.ranks}, microbatches={case.microbatches}{options}'


def _steps(family: Family) -> str:
    if not family.trains:
        return "none: inference"
    return "one optimizer step after all microbatches" if family.synchronous else "asynchronous: several, between them"


def paper(text: str) -> str:
    """A reference with its links."""
    text = _ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", text)
    text = _DOI.sub(r"[doi \1](https://doi.org/\1)", text)
    return _GITHUB.sub(lambda found: f"[{found[0]}](https://{found[0]})", text)


def _prose(docstring: str) -> str:
    """A docstring as Markdown: its `name: text` entries as a list."""
    lines: list[str] = []
    for line in docstring.splitlines():
        if _ENTRY.match(line):
            if lines and lines[-1] and not lines[-1].startswith(("- ", "  ")):
                lines.append("")
            line = "- " + _ENTRY.sub(r"**\1**: ", line)
        elif line.startswith("Raises "):
            lines.append("")
        elif lines and lines[-1].startswith(("- ", "  ")) and line:
            line = f"  {line.strip()}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _options(family: Family) -> str:
    if not family.options:
        return "No options beside the numbers of ranks and microbatches.\n"
    rows = [f"| `{name}` | {_value(value)} |" for name, value in family.options.items()]
    return "\n".join(["| option | if not given |", "|---|---|", *rows, ""])


def _value(value: object) -> str:
    return "chosen" if value is None else f"`{value}`"


def _forms(case: Example, metrics: Metrics, peaks: list[float]) -> str:
    """Formulas beside what the engine makes of the example (F = I = W = 1 s)."""
    family, setting = case.family, case.setting
    span = float(metrics.per_rank.span_s.max())
    added = case.simulated(latency=_LATENCY).makespan_s - metrics.makespan_s
    rows = [
        _form_row("makespan, C = 0", family.makespan, setting, f"{metrics.makespan_s:g} s"),
        _form_row("longest span of a rank", family.span, setting, f"{span:g} s"),
        _form_row(f"added by C = {_LATENCY} s", family.latency, setting, f"{added:.3g} s"),
    ]
    formula = family.peak_formula or "none known"
    value = ""
    if family.peak is not None and family.peak_holds(setting):
        value = ", ".join(f"{family.peak(setting, rank):g}" for rank in range(case.ranks))
    rows.append(f"| peak activations, microbatches | {formula} | {value} | {', '.join(f'{one:g}' for one in peaks)} |")
    if family.versions is not None:
        schedule = build(family.name, ranks=case.ranks, microbatches=case.microbatches)
        kept = ", ".join(f"{family.versions(setting, rank)}" for rank in range(case.ranks))
        rows.append(f"| weight versions a rank keeps | | {kept} | {', '.join(map(str, versions_kept(schedule)))} |")
    for name in ("bubble_fraction", "bubble_ratio", "span_bubble_rate"):
        rows.append(f"| [{name}](../concepts.md#three-figures-called-bubble) | | | {getattr(metrics, name):.4f} |")
    head = ["| | formula | its value in the example | simulated |", "|---|---|---|---|"]
    return "\n".join([*head, *(row for row in rows if row), ""])


def _form_row(name: str, form: Form | None, setting: Setting, simulated: str) -> str:
    if form is None:
        return f"| {name} | none known | | {simulated} |" if "span of" not in name else ""
    value = f"{form.value(setting):.4g} s" if form.holds(setting) else ""
    where = "" if form.where == "always" else f", for {form.where}"
    return f"| {name} | {form.formula}{where} | {value} | {simulated} |"
