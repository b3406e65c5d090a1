"""The pages made from the code: what they say of each family is so, and every command has its page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from docs.generate import api, commands, families, pictures
from pipesim.cli.app import COMMANDS
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.family import Family
from tests.docs.runner import ROOT, run_page


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_commands_and_programs_of_a_family_run(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(families.page(family).replace("## Source", "<!-- source -->\n").partition("<!-- source -->")[0], tmp_path)
    assert tmp_path.joinpath(f"{family.name}.html").exists()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_closed_forms_of_a_page_are_what_it_simulates(family: Family) -> None:
    """The column beside the formula and the simulated one are made by different code."""
    case = families.example(family)
    metrics = case.simulated()
    for form, value in ((family.makespan, metrics.makespan_s), (family.span, metrics.per_rank.span_s.max())):
        if form is not None and form.holds(case.setting):
            assert form.value(case.setting) == pytest.approx(value)
    if family.latency is not None and family.latency.holds(case.setting):
        added = case.simulated(latency=case.setting.C).makespan_s - metrics.makespan_s
        assert family.latency.value(case.setting) == pytest.approx(added)
    if family.peak is not None and family.peak_holds(case.setting):
        expected = [family.peak(case.setting, rank) for rank in range(case.ranks)]
        assert metrics.peak_activations == pytest.approx(expected)


def test_a_page_says_what_a_schedule_is() -> None:
    text = families.page(FAMILIES["interleaved"])
    for line in (
        "| placement | looped |",
        "| `virtual` | `2` |",
        "| makespan, C = 0 | m(F+I+W) + (p-1)(F+I+W)/v, for p divides m | 28.5 s | 28.5 s |",
        "| added by C = 0.05 s | 2(vp-1)C, for p divides m, m > p | 0.7 s | 0.7 s |",
        "<!-- chart: interleaved -p 4 -m 8 --costs F=1,I=1,W=1 -->",
    ):
        assert f"{line}\n" in text


def test_every_family_is_in_one_group_of_the_gallery() -> None:
    grouped = [title for _, members in families.titles() for title, _ in members]
    assert sorted(grouped) == sorted(FAMILIES)


def test_papers_are_links() -> None:
    assert families.paper("Huang et al. 2019, arXiv 1811.06965") == (
        "Huang et al. 2019, [arXiv 1811.06965](https://arxiv.org/abs/1811.06965)"
    )
    assert families.paper("SOSP, doi 10.1145/3341301.3359646") == (
        "SOSP, [doi 10.1145/3341301.3359646](https://doi.org/10.1145/3341301.3359646)"
    )


def test_every_command_has_a_page_with_its_options() -> None:
    made = commands.pages()
    assert set(made) == {"commands/index.md", *(f"commands/{name}.md" for name in COMMANDS)}
    assert "| `--microbatches`, `-m` | `int` |" in made["commands/simulate.md"]
    assert "```sh\npipesim simulate 1f1b" in made["commands/simulate.md"]


@pytest.mark.slow
def test_pages_do_not_tell_where_they_were_made() -> None:
    """The default of `launch --python` was the path of the environment that built the site."""
    for name, text in (families.pages() | commands.pages() | api.pages()).items():
        assert str(ROOT) not in text, name
        assert sys.executable not in text, name


@pytest.mark.slow
def test_every_module_with_public_names_is_in_the_reference() -> None:
    text = "\n".join(api.pages().values())
    for module in ("pipesim.ir.schedule", "pipesim.timeline", "pipesim.schedules.zb_v", "pipesim.backends.pipeline"):
        assert f"::: {module}\n" in text


def test_pictures_are_those_of_their_charts() -> None:
    """Readers of the files see pictures, readers of the site charts: of the same runs."""
    found = dict(pictures.pictures())
    for path, text in found.items():
        assert path.exists(), "python -m docs.generate.pictures"
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: python -m docs.generate.pictures"
    assert sorted(pictures.DOCS.glob("images/charts/*")) == sorted(found)


def test_a_chart_in_a_page_has_its_picture_below() -> None:
    for page in sorted(pictures.DOCS.glob("*.md")):
        for chart in pictures.CHART.finditer(page.read_text(encoding="utf-8")):
            assert chart["picture"] == pictures.address(chart[1]), f"{page.name}: {chart[1]}"
