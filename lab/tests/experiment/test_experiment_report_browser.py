"""Pages of experiments as a browser shows them: every chart has marks in view, light and dark, and nothing fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser, missing
from made_runs import make_run

from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_lab.experiment.report.compare import compare
from kubeshard_lab.experiment.report.page import write

pytestmark = pytest.mark.system

MARKS = """
return [...document.querySelectorAll("figure svg")].map(svg => {
  const frame = svg.getBoundingClientRect();
  const kinds = ".line path, .bar path, .area use, .spread path, .growth path";
  const marks = [...svg.querySelectorAll(kinds)].filter(mark => {
    const box = mark.getBoundingClientRect(), style = getComputedStyle(mark);
    const painted = [style.stroke, style.fill].some(paint => paint.startsWith("rgb(") && paint !== ground);
    return painted && box.width + box.height > 1 && box.left >= frame.left - 1 && box.right <= frame.right + 1
      && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
  });
  return [svg.getAttribute("aria-label").split(".")[0], marks.length];
});
"""
GROUND = "const ground = getComputedStyle(document.body).backgroundColor;"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if what := missing():
        pytest.skip(f"the machine has {what}")
    with browser(free_port()) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        make_run(folder / "singleton", setup="singleton", instances=1, workers=50, duration=60.0),
        make_run(folder / "two", instances=2, workers=50, duration=60.0, killed_at=20.0),
        make_run(folder / "three", instances=3, workers=50, duration=60.0),
    ]
    return {"run": write(runs[1]), "comparison": compare(runs, folder / "comparison.html")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "charts"), [("run", 7), ("comparison", 4)])
def test_every_chart_is_in_view_with_marks_and_the_browser_reports_nothing(
    chromium: Browser, pages: dict[str, Path], name: str, charts: int, scheme: str
) -> None:
    chromium.prefer(scheme)
    chromium.open(pages[name].as_uri())
    ground = chromium.run("return getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(254, 254, 254)") == (scheme == "light")
    found = chromium.run(GROUND + MARKS)
    assert len(found) == charts
    assert all(marks > 0 for _, marks in found), found
    assert chromium.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert chromium.complaints() == []


def test_the_text_of_drawings_is_text_and_is_legible(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["run"].as_uri())
    heights = chromium.run(
        'return [...document.querySelectorAll("figure svg text")].map(text => text.getBoundingClientRect().height)'
    )
    assert len(heights) > 100
    assert min(heights) > 9
