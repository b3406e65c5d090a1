"""The playground: its state as an address, what it computes, and the page in a browser."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pipesim.cli import app
from pipesim.cli.playground import CannotListen, NoDash, make_server
from pipesim.cli.playground.state import NothingToShow, State, over_limit, run, state_of_query
from pipesim.ir.program import COMM_POLICIES
from pipesim.schedules.catalogue import FAMILIES
from pipesim.units import BadQuantity
from tests.viz.browser import Sheet, browser


@pytest.mark.parametrize(
    "state",
    [
        State(),
        State(schedules=("gpipe", "zb-v"), ranks=8, microbatches=32, virtual=4, memory_limit=5.5, theme="dark"),
        State(forward="1.5 s", link="400Gb/s", message="3MiB", comm="blocking", optimizer="4ms"),
    ],
)
def test_an_address_holds_the_state(state: State) -> None:
    assert state_of_query(state.query()) == state


def test_the_usual_needs_no_address() -> None:
    assert State().query() == ""
    assert state_of_query("") == State()


@pytest.mark.parametrize(
    "query",
    ["?ranks=x&microbatches=&virtual=nan", "?schedules=os:system,my_module.py:build", "?comm=fast&theme=blue",
     "?memory_limit=-3", "?nonsense=1&=&&&", "?ranks=%00"],
)  # fmt: skip
def test_what_makes_no_sense_is_as_usual(query: str) -> None:
    assert state_of_query(query) == State()


def test_numbers_have_bounds() -> None:
    state = state_of_query("?ranks=100000&microbatches=10000000&virtual=-4")
    assert (state.ranks, state.microbatches, state.virtual) == (64, 1024, 1)
    with pytest.raises(NothingToShow, match="up to 1,000,000 are drawn"):
        run(replace(state, schedules=tuple(FAMILIES)[:6], virtual=16))


def test_a_state_gives_the_figures_of_its_schedules() -> None:
    (one, found), (other, better) = run(State(schedules=("1f1b", "zb-v"), latency="0ms", message="0B"))
    assert (one.name, other.name) == ("1f1b", "zb-v")
    assert found.makespan_s == pytest.approx((8 + 3) * 28e-3)
    assert better.bubble_fraction < found.bubble_fraction


@pytest.mark.parametrize("comm", COMM_POLICIES)
def test_a_slow_link_takes_its_time(comm: str) -> None:
    quick, slow = (run(State(link=link, comm=comm))[0][1].makespan_s for link in ("1TB/s", "1GB/s"))
    assert slow > quick + 0.016 * 6


def test_a_limit_that_is_broken_is_said() -> None:
    state = State(schedules=("gpipe", "1f1b"), memory_limit=5)
    said = over_limit(state, [found for _, found in run(state)])
    assert said == ["gpipe holds 8 microbatches of activations on rank 0, 5 are allowed"]


@pytest.mark.parametrize(("name", "value"), [("forward", "fast"), ("link", "0GB/s"), ("message", "-1MB")])
def test_what_cannot_be_read_is_an_error(name: str, value: str) -> None:
    with pytest.raises(BadQuantity):
        run(replace(State(), **{name: value}))


def test_without_dash_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipesim.cli.playground.find_spec", lambda name: None)
    with pytest.raises(NoDash, match="pip install 'pipesim\\[app\\]'"):
        make_server("127.0.0.1", 0)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pytest.importorskip("dash")
    server = make_server("127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}/"
    server.shutdown()
    thread.join(10)


def test_a_port_that_is_taken(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    port = address.rsplit(":", 1)[1].strip("/")
    with pytest.raises(CannotListen):
        make_server("127.0.0.1", int(port))
    capsys.readouterr()
    assert app.main(["app", "--port", port]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


def _figure(sheet: Sheet, name: str) -> str:
    return str(sheet.page.locator(f"#figures dt:text-is('{name}') + dd").inner_text())


@pytest.mark.slow
def test_the_page_follows_its_controls(chromium: Any, address: str) -> None:
    sheet = Sheet(chromium)
    sheet.page.goto(address)
    sheet.page.wait_for_selector("#chart .js-plotly-plot[data-ready=yes]")
    before = _figure(sheet, "step time")
    sheet.page.locator("#microbatches").fill("128")
    sheet.page.locator("#ranks").fill("16")
    sheet.page.wait_for_function("location.search === '?ranks=16&microbatches=128'")
    sheet.page.wait_for_function("document.querySelector('.js-plotly-plot').pipesim?.scenes?.[0].ranks === 16")
    assert _figure(sheet, "step time") != before
    began = time.perf_counter()
    sheet.page.locator("#microbatches").fill("127")
    sheet.page.wait_for_function(
        "document.querySelector('.js-plotly-plot').pipesim?.scenes?.[0].panel.microbatches === 127", polling=20
    )
    assert time.perf_counter() - began < 3.0  # benchmarks/charts has the time on a quiet machine: below 0.5 s
    sheet.picture("playground")
    sheet.page.locator("#forward").fill("fast")
    sheet.page.wait_for_selector("#trouble p")
    assert "forward='fast'" in sheet.page.locator("#trouble").inner_text()
    assert sheet.complaints == []
    sheet.page.close()


@pytest.mark.slow
def test_a_shared_address_restores_the_state(chromium: Any, address: str) -> None:
    state = State(schedules=("1f1b", "zb-v"), ranks=6, microbatches=12, forward="20ms", theme="dark")
    sheet = Sheet(chromium)
    sheet.page.goto(address + state.query())
    sheet.page.wait_for_selector("#chart .js-plotly-plot[data-ready=yes]")
    sheet.page.wait_for_selector("#table td.best")
    assert sheet.page.locator("#ranks").input_value() == "6"
    assert sheet.page.locator("#forward").input_value() == "20ms"
    assert sheet.run("return overlay.about.panels.map((panel) => panel.name)") == ["1f1b", "zb-v"]
    assert sheet.page.evaluate("document.documentElement.dataset.theme") == "dark"
    with sheet.page.expect_download() as download:
        sheet.page.get_by_role("button", name="Download page").click()
    assert download.value.suggested_filename == "1f1b.html"
    assert sheet.complaints == []
    sheet.page.close()
