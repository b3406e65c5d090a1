"""A real browser for the tests: Playwright driving the Chromium of the machine."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Where a Chromium is on this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    """A browser, or the test is skipped and says why."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
    path = chromium()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as play:
        opened = play.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


class Sheet:
    """A page that is open, with what it complained about and a few ways to look at a chart in it."""

    def __init__(self, opened: Any, *, width: int = 1400, height: int = 900) -> None:
        self.page = opened.new_page(viewport={"width": width, "height": height})
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self._note(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and "getImageData" not in text:  # `pixel` reads back, the page does not
            self.complaints.append(text)

    def show(self, path: Path | str, chart: str = "chart") -> None:
        self.page.goto(Path(path).as_uri() if isinstance(path, Path) else path)
        self.page.wait_for_function(f"document.getElementById('{chart}')?.dataset.ready === 'yes'")

    def run(self, script: str, *args: Any) -> Any:
        """The value of a script; `graph` and `overlay` are the chart."""
        head = "const graph = document.querySelector('.js-plotly-plot'), overlay = graph.pipesim;"
        return self.page.evaluate(f"async (args) => {{ {head} {script} }}", list(args))

    def place(self, op: int, panel: int = 0) -> tuple[float, float]:
        """Where the middle of an operation's box is in the window."""
        x, y = self.run(
            """
            const scene = overlay.scenes[args[1]], box = graph.querySelector('.svg-container').getBoundingClientRect();
            for (const strip of scene.strips) {
              const at = strip.ops.indexOf(args[0]);
              if (at < 0) continue;
              const view = pipesim.viewOf(graph, scene.panel);
              return [box.left + pipesim.toX(view, (strip.start[at] + strip.end[at]) / 2),
                      box.top + pipesim.toY(view, strip.rank + (strip.low + strip.high) / 2)];
            }
            """,
            op,
            panel,
        )
        return x, y

    def pixel(self, x: float, y: float) -> list[int]:
        """Colour painted over the chart at a place of the window: red, green, blue, alpha."""
        colour: list[int] = self.run(
            """
            const canvas = graph.querySelector('canvas.pipesim'), box = canvas.getBoundingClientRect();
            const ratio = canvas.width / box.width;
            const at = [args[0] - box.left, args[1] - box.top].map((value) => Math.round(value * ratio));
            return Array.from(canvas.getContext('2d').getImageData(...at, 1, 1).data);
            """,
            x,
            y,
        )
        return colour

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.run("await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)));")

    def picture(self, name: str) -> None:
        """Keep a screenshot where CI looks for them."""
        folder = os.environ.get("PIPESIM_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)
