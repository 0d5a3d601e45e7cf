"""Pages, tables and figures as HTML. Every text that comes in is escaped here, except for what is of type `Markup`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from kubeshard_lab.experiment.recording import RunRecord
from kubeshard_lab.experiment.report.charts import Chart
from kubeshard_lab.experiment.report.colours import DARK, LIGHT, themed, variables
from kubeshard_lab.experiment.report.words import verdict


class Markup(str):
    """HTML: nothing in it is to be escaped."""

    __slots__ = ()


@dataclass(frozen=True)
class Column:
    name: str
    number: bool = True


def escape(text: str) -> Markup:
    return text if isinstance(text, Markup) else Markup(html.escape(text))


def page(title: str, header: Sequence[Markup], main: Sequence[Markup], footer: Sequence[Markup]) -> str:
    """A whole page, which loads nothing."""
    folder = files(__package__)
    return Template((folder / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        header="\n".join(header),
        main="\n".join(main),
        footer="\n".join(footer),
        style=(folder / "page.css").read_text(encoding="utf-8"),
        light=variables(LIGHT),
        dark=variables(DARK),
    )


def element(tag: str, text: str, kind: str = "") -> Markup:
    attribute = f' class="{html.escape(kind)}"' if kind else ""
    return Markup(f"<{tag}{attribute}>{escape(text)}</{tag}>")


def paragraph(text: str, kind: str = "") -> Markup:
    return element("p", text, kind)


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, sums: int = 0) -> Markup:
    """The first cell of a row is its heading. The last `sums` rows are sums of those before."""
    given = list(rows)
    head = "".join(f'<th scope="col"{_number(column)}>{escape(column.name)}</th>' for column in columns)
    body = []
    for position, row in enumerate(given):
        first, *rest = zip(columns, row, strict=True)
        cells = f'<th scope="row"{_number(first[0])}>{escape(first[1])}</th>' + "".join(
            f"<td{_number(column)}>{escape(cell)}</td>" for column, cell in rest
        )
        kind = ' class="sum"' if position >= len(given) - sums else ""
        body.append(f"<tr{kind}>{cells}</tr>")
    return Markup(
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def facts(pairs: Mapping[str, str]) -> Markup:
    return Markup(
        "<dl>"
        + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs.items())
        + "</dl>"
    )


def bullets(texts: Iterable[str]) -> Markup:
    return Markup("<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>")


_SIGNS = {"good": "\u2713", "bad": "\u2717", "unsure": "!"}


def judged(run: RunRecord, tag: str = "span") -> Markup:
    """The verdict, with a sign for those who cannot tell its colour."""
    kind, sentence = verdict(run)
    return Markup(f'<{tag} class="verdict {kind}">{element("b", _SIGNS[kind])} {escape(sentence)}</{tag}>')


def figure(chart: Chart, drawn: str) -> Markup:
    """A chart with its heading. `drawn` is an SVG document."""
    return Markup(
        f'<section><h2 id="{html.escape(chart.name)}">{escape(chart.title)}</h2>\n<figure>'
        f'<div class="scroll">{_inline(chart, drawn)}</div>'
        f"<figcaption>{escape(chart.note)}</figcaption></figure></section>"
    )


def _inline(chart: Chart, drawn: str) -> Markup:
    """As a part of a page: names within the drawing are those of this chart only, and colours those of the page."""
    body = drawn[drawn.index("<svg") :]
    view = re.search(r'viewBox="[^"]*"', body)
    if view is None:
        raise ValueError("the drawing has no viewBox")
    inner = body[body.index(">") + 1 :]
    inner = re.sub(r"<(metadata|style).*?</\1>", "", inner, flags=re.S)
    inner = re.sub(r'\bid="', f'id="{chart.name}-', inner)
    inner = re.sub(r'((?:xlink:)?href=")#', rf"\1#{chart.name}-", inner)
    inner = inner.replace("url(#", f"url(#{chart.name}-")
    label = html.escape(f"{chart.title}. {chart.says}")
    return Markup(f'<svg role="img" aria-label="{label}" {view[0]}>{themed(inner)}')


def _number(column: Column) -> str:
    return ' class="number"' if column.number else ""
