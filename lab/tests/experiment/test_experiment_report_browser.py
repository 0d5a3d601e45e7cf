"""Pages of experiments as a browser shows them: every chart has marks in view, light and dark, and nothing fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser, missing
from made_runs import make_run

from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_lab.experiment.report.page import write

pytestmark = pytest.mark.system

MARKS = """
return [...document.querySelectorAll("figure svg")].map(svg => {
  const frame = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll(".line path")].filter(mark => {
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
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return write(make_run(folder / "two", instances=2, workers=50, duration=60.0, killed_at=20.0))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_in_view_with_marks_and_the_browser_reports_nothing(
    chromium: Browser, page: Path, scheme: str
) -> None:
    chromium.prefer(scheme)
    chromium.open(page.as_uri())
    ground = chromium.run("return getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(254, 254, 254)") == (scheme == "light")
    found = chromium.run(GROUND + MARKS)
    assert len(found) == 6
    assert all(marks > 0 for _, marks in found), found
    assert chromium.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert chromium.complaints() == []


def test_the_text_of_drawings_is_text_and_is_legible(chromium: Browser, page: Path) -> None:
    chromium.open(page.as_uri())
    heights = chromium.run(
        'return [...document.querySelectorAll("figure svg text")].map(text => text.getBoundingClientRect().height)'
    )
    assert len(heights) > 100
    assert min(heights) > 9
