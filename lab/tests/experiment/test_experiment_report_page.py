"""The page of a run says what happened, needs nothing but itself, and is made from whatever the run has left."""

from __future__ import annotations

import csv
import re
import sys
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_runs import BEGAN, make_run
from msgspec.structs import replace
from recorded import RUN

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError
from kubeshard_lab.experiment.recording import Event, Recorder, save
from kubeshard_lab.experiment.report.page import write

pytestmark = pytest.mark.long

CHARTS = ("latency", "queue", "rate", "objects", "cpu", "memory")


class Parsed(HTMLParser):
    """The tags of a page, its texts, and the marks of each drawing."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.marks: dict[str, int] = {}
        self._drawing = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.tags.append((tag, given))
        if tag == "svg":
            self._drawing = given.get("aria-label") or ""
            self.marks[self._drawing] = 0
        self.marks[self._drawing] = self.marks.get(self._drawing, 0) + (given.get("class") == "line")

    def handle_data(self, data: str) -> None:
        self.text += f" {data}".rstrip()

    def ids(self) -> list[str]:
        return [found for _, attributes in self.tags if (found := attributes.get("id"))]


def drawings(parsed: Parsed) -> dict[str, int]:
    return {label: count for label, count in parsed.marks.items() if label}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which an operator was killed, with its page."""
    folder = make_run(tmp_path_factory.mktemp("run"), killed_at=60.0)
    write(folder)
    return folder


@pytest.fixture(scope="module")
def page(killed: Path) -> str:
    return (killed / "report.html").read_text()


@pytest.fixture
def no_pngs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of what is on a page do without the pictures beside it, which take half of the time."""
    monkeypatch.setattr("kubeshard_lab.experiment.report.drawing.png", lambda chart: b"")


def test_a_page_has_every_chart_with_marks_and_says_what_each_shows(page: str) -> None:
    found = drawings(Parsed(page))
    assert len(found) == len(CHARTS)
    assert all(found.values())
    assert any("p99 between" in label for label in found)
    assert all(len(label) > 60 for label in found)


def test_each_chart_is_beside_the_page_as_svg_png_and_csv(killed: Path) -> None:
    beside = killed / "charts"
    assert {path.name for path in beside.iterdir()} == {
        f"{chart}.{kind}" for chart in CHARTS for kind in ("svg", "png", "csv")
    }
    assert (beside / "cpu.png").read_bytes().startswith(b"\x89PNG")
    assert "operator-1" in (beside / "cpu.svg").read_text()  # as text
    rows = list(csv.DictReader((beside / "objects.csv").open()))
    assert {row["line"] for row in rows} == {"operator-1", "operator-2", "operator-3", "all"}
    assert all(0 <= float(row["seconds"]) <= 120 for row in rows)


def test_a_page_loads_nothing(page: str) -> None:
    assert not re.findall(r"https?:|//[a-z]|@import", page)
    parsed = Parsed(page)
    assert not {tag for tag, _ in parsed.tags} & {"script", "img", "iframe", "object"}
    used = {value for _, attributes in parsed.tags for name, value in attributes.items() if "href" in name}
    assert all(value is not None and value.startswith(("#", "data:,")) for value in used)


def test_what_a_drawing_refers_to_is_on_the_page_once(page: str) -> None:
    ids = Parsed(page).ids()
    assert len(ids) == len(set(ids))
    wanted = {*re.findall(r'href="#([^"]+)"', page), *re.findall(r"url\(#([^)]+)\)", page)}
    assert wanted
    assert wanted <= set(ids)


def test_a_page_follows_the_colours_of_its_reader(page: str) -> None:
    """Every colour in a drawing is a variable, of which light and dark have their own."""
    assert not re.findall(r"#[0-9a-f]{6}\b", page[page.index("<body>") :])
    used = set(re.findall(r"var\(--([a-z]+)\)", page))
    light, dark = re.findall(r":root \{([^}]*)\}", page)
    assert all(f"--{name}:" in light and f"--{name}:" in dark for name in used)


def test_what_happened_is_marked_in_every_chart_and_listed(page: str) -> None:
    assert page.count('class="panel"') == 9
    assert page.count('class="event"') == 3 * 9
    assert "1 1:00 killed operator-1 by the scenario" in Parsed(page).text


@pytest.mark.usefixtures("no_pngs")
def test_the_verdict_and_every_level_are_said_in_words(tmp_path: Path) -> None:
    text = Parsed(write(make_run(tmp_path)).read_text()).text
    assert "Valid. All 3 service levels were kept." in text
    assert "reconcile p99: kept (" in text  # at the line of the limit


@pytest.mark.usefixtures("no_pngs")
def test_an_invalid_run_says_why(tmp_path: Path) -> None:
    why = "The load fell behind: requests were sent 3 s late."
    text = Parsed(write(make_run(tmp_path, invalid=(why,))).read_text()).text
    assert f"Invalid: the figures say nothing about the controllers. {why}" in text


@pytest.mark.usefixtures("no_pngs")
def test_names_are_text_whatever_they_are(tmp_path: Path) -> None:
    folder = make_run(tmp_path, operator="<script>alert({})</script>$x^2$&\"'", scenario="<b>basic</b>")
    page = write(folder).read_text()
    assert "<script" not in page
    assert "<b>basic" not in page
    assert "<script>alert(1)</script>$x^2$&\"'" in Parsed(page).text


@pytest.mark.system
def test_a_page_of_80_000_generations_is_smaller_than_3_mb(tmp_path: Path) -> None:
    folder = make_run(tmp_path, duration=900.0, rate=140.0, scale=1.0, instances=5, killed_at=300.0)
    assert sum(1 for _ in (folder / "generations.csv").open()) > 80_000
    assert write(folder).stat().st_size < 3_000_000


@pytest.mark.usefixtures("no_pngs")
def test_a_run_that_was_killed_has_a_page_of_what_it_left(tmp_path: Path) -> None:
    folder = make_run(tmp_path, cut_off_at=40.0)
    with (folder / "generations.csv").open("a") as file:
        file.write("project-1,experiment-1,uid,1,17000")
    parsed = Parsed(write(folder).read_text())
    assert "The run was cut off before its load was over" in parsed.text
    assert len(drawings(parsed)) == len(CHARTS)
    assert all(drawings(parsed).values())


def test_a_run_that_never_began_has_a_page(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path)):
        save(tmp_path, RUN)
    parsed = Parsed(write(tmp_path).read_text())
    assert "No generation was written." in parsed.text
    assert not drawings(parsed)


def test_a_run_that_lost_its_server_at_once_has_a_page(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path)) as recorder:
        save(tmp_path, replace(RUN, began=BEGAN))
        recorder.add(Event(BEGAN, "load-began", "", ""))
        recorder.add(Event(BEGAN + 0.2, "server-lost", "", "connection refused"))
    assert "connection refused" in Parsed(write(tmp_path).read_text()).text


@pytest.mark.usefixtures("no_pngs")
def test_the_command_makes_the_page_again(killed: Path) -> None:
    result = CliRunner().invoke(cli, ["report", str(killed)], catch_exceptions=False)
    assert (result.exit_code, result.output.strip()) == (0, str(killed / "report.html"))


@pytest.mark.parametrize("name", [".", "missing"])
def test_a_folder_without_a_run_is_said_to_be_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is not the folder of a run: it has no run\.json"):
        write(tmp_path / name)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = make_run(tmp_path, duration=10.0)
    with (folder / "events.csv").open("a") as file:
        file.write("soon,killed,operator-1,\n")
    with pytest.raises(ConfigurationError, match=r"events\.csv, line 2"):
        write(folder)


def test_without_matplotlib_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "kubeshard_lab.experiment.report.drawing", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"need the package matplotlib: .*\[lab\]"):
        write(make_run(tmp_path, duration=10.0))
