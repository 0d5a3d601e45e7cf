"""The command `kubeshard measure`: takes the Go project's files of queries, and writes its CSV byte for byte."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

import click
import msgspec

from kubeshard.cli.yaml_files import read_documents, source_name
from kubeshard.commands.options import Command
from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.config_file import Duration
from kubeshard.runtime.logs import one_line
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, Transport, TransportError
from kubeshard.runtime.world import REAL_WORLD

TIMEOUT = 10
"""Seconds that the server may take for a query."""
SHOWN = 20
"""Violations that are listed for one query; the CSV has all."""
RANGE = "$__range"
"""In an instant query, it stands for the time between start and end."""
_NO_SPACES = frozenset("\x1c\x1d\x1e\x1f")
"""Spaces for Python, but not for Go."""
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_SECONDS = re.compile(r"[-+]?\d+")


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    query: str
    type: Literal["range", "instant"] = "range"
    optional: bool = False
    slo: float | None = None


class Window(NamedTuple):
    """Unix times, and the seconds between the points of a range query."""

    start: float
    end: float
    step: float


class Series(msgspec.Struct):
    """Of a matrix, or a sample of a vector. Its points are times and values."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None
    histograms: list[Any] = []
    histogram: Any = None

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(time, float(value)) for time, value in ([self.value] if self.value else self.values)]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: Any


class _Answer(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""


@click.command(
    cls=Command,
    short_help="Query a Prometheus for figures, and check service levels.",
    examples=(
        "kubeshard measure queries.yaml -o results/ --start -20m --end -5m",
        "kubeshard measure queries.yaml --prometheus-url https://prometheus.example.com --bearer-token-file token",
    ),
)
@click.argument("source", metavar="QUERIES_FILE|-", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output-dir",
    metavar="DIR",
    default=".",
    show_default=True,
    help="Directory of the CSV files; - writes them to standard output.",
)
@click.option("--output-prefix", metavar="PREFIX", default="", help="Prefix of the files' names.")
@click.option(
    "--prometheus-url",
    metavar="URL",
    default="http://localhost:9091",
    show_default=True,
    help="The Prometheus. Its path is kept.",
)
@click.option(
    "--step", metavar="DURATION", default="15s", show_default=True, help="Between points of range queries."
)
@click.option(
    "--start",
    metavar="TIME",
    default="-15m",
    show_default=True,
    help="RFC 3339, relative to now, or Unix seconds.",
)
@click.option("--end", metavar="TIME", default="0", show_default=True, help="Likewise; 0 is now.")
@click.option(
    "--bearer-token-file",
    "token",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with the token to send.",
)
def measure(
    source: Path,
    output_dir: str,
    output_prefix: str,
    prometheus_url: str,
    step: str,
    start: str,
    end: str,
    token: Path | None,
) -> None:
    """Send the queries in a file to a Prometheus, and write a CSV file for each.

    A query with an `slo` is a service level, which no value may exceed. The exit code is 1 if one is not kept, or if a
    query that is not `optional` has no answer. A query may take 10 seconds.
    """
    queries = parse_queries(read_documents(source), source_name(source))
    now = REAL_WORLD.clock.wall()
    try:
        window = Window(parse_time(start, now), parse_time(end, now), Duration.parse(step))
        if window.start >= window.end or window.step <= 0:
            raise ValueError("--start must be before --end, and --step more than 0")
        transport = REAL_WORLD.connect(prometheus_url.rstrip("/"), Tls())
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    headers = {"authorization": f"Bearer {_read(token).strip()}"} if token else {}
    problems = asyncio.run(_asked_all(queries, window, transport, headers, output_dir, output_prefix))
    if problems:
        raise click.ClickException("; ".join(problems))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def parse_queries(documents: Sequence[Any], source: str) -> Sequence[Query]:
    try:
        queries = msgspec.convert(documents[0]["queries"], list[Query], strict=False)
    except (LookupError, TypeError):
        raise ConfigurationError(f"{source}: no list of queries: it begins with `queries:`") from None
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{source}: queries: {error}") from error
    name, count = Counter(query.name for query in queries).most_common(1)[0] if queries else ("", 0)
    if count != 1 or not all(query.name and query.query.strip() for query in queries):
        raise ConfigurationError(
            f"{source}: each query needs a text and a name of its own; {count} are called {name!r}"
        )
    return queries


def parse_time(text: str, now: float) -> float:
    """RFC 3339, relative to now, or Unix seconds, as the Go project's tool takes it. Raises ValueError."""
    try:
        if _RFC3339.fullmatch(text):
            return datetime.fromisoformat(text).timestamp()
        if _SECONDS.fullmatch(text) and text != "0":
            return float(text)
        return now + Duration.parse(text)
    except ValueError:
        raise ValueError(
            f'{text!r} is not a time: write it like "2006-01-02T15:04:05Z", "-5m" or "1665825136"'
        ) from None


async def _asked_all(
    queries: Iterable[Query],
    window: Window,
    transport: Transport,
    headers: Mapping[str, str],
    output_dir: str,
    prefix: str,
) -> Sequence[str]:
    """What is wrong. Each query is asked, whatever becomes of the others."""
    problems = list[str]()
    try:
        for query in queries:
            try:
                series = await _asked(query, window, transport, headers)
            except (TransportError, ValueError) as error:
                problems.append(f"{query.name}: {one_line(str(error)) or 'no answer'}")
                continue
            if series:
                _write(output_dir, f"{prefix}{query.name}.csv", csv_lines(series))
            values = [value for each in series for _, value in each.points if not math.isnan(value)]
            if not (values if query.slo is not None else series):
                problems += [] if query.optional else [f"{query.name}: no data"]
            elif query.slo is not None and max(values) > query.slo:
                problems.append(f"{query.name}: not kept: {number(max(values))} > {number(query.slo)}")
                click.echo("\n".join(_violations(query, series)), err=True)
    finally:
        await transport.close()
    return problems


async def _asked(
    query: Query, window: Window, transport: Transport, headers: Mapping[str, str]
) -> Sequence[Series]:
    """Raises TransportError, and ValueError for an answer that is none."""
    parameters = {"query": query.query, "timeout": f"{TIMEOUT}s"}
    if query.type == "range":
        expected, path = "matrix", "query_range"
        parameters |= {name: number(value) for name, value in window._asdict().items()}
    else:
        expected, path = "vector", "query"
        text = query.query.replace(RANGE, f"{round((window.end - window.start) * 1000)}ms")
        parameters |= {"query": text, "time": number(window.end)}
    request = HttpRequest("GET", f"/api/v1/{path}?{urlencode(parameters)}", headers, timeout=TIMEOUT + 2.0)
    got = await transport.request(request)
    try:
        answer = msgspec.json.decode(got.body, type=_Answer)
    except msgspec.DecodeError:
        raise ValueError(
            f"the server answered {got.status} and not as a Prometheus does: check --prometheus-url, and "
            "--bearer-token-file"
        ) from None
    if answer.status != "success" or answer.data is None:
        raise ValueError(f"{answer.error_type}: {answer.error}")
    if answer.data.result_type != expected:
        raise ValueError(f"a query of type {query.type} needs a {expected}, not a {answer.data.result_type}")
    series = msgspec.convert(answer.data.result, list[Series], strict=False)
    if any(each.histogram or each.histograms for each in series):
        raise ValueError("native histograms: ask for a quantile, sum or count of them")
    return series


def _write(output_dir: str, name: str, lines: Iterable[str]) -> None:
    if output_dir == "-":
        click.echo(f"# {name}\n{''.join(lines)}", nl=False)
        return
    try:
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        (Path(output_dir) / name).write_text("".join(lines), encoding="utf-8", newline="")
    except OSError as error:
        raise click.ClickException(f"{Path(output_dir) / name}: {error.strerror or error}") from None


def _violations(query: Query, series: Sequence[Series]) -> Iterator[str]:
    found = [(value, time, each.metric) for each in series for time, value in each.points]
    over = [each for each in found if query.slo is not None and each[0] > query.slo]
    for value, time, labels in over[:SHOWN]:
        yield f"{query.name}: {number(value)} at {math.floor(time)} {labels}"
    if len(over) > SHOWN:
        yield f"{query.name}: and {len(over) - SHOWN} more"


def number(value: float) -> str:
    """The shortest decimal digits, without an exponent, that are read as the same number; as Go writes them."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    digits = format(Decimal(repr(value)), "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def csv_lines(answer: Sequence[Series]) -> Iterator[str]:
    """`ts,value` and all label names in alphabetical order, without the metric's name; times in whole Unix seconds."""
    labels = sorted({label for series in answer for label in series.metric} - {"__name__"})
    yield ",".join(map(_field, ("ts", "value", *labels))) + "\n"
    for series in answer:
        for time, value in series.points:
            fields = str(math.floor(time)), number(value), *(series.metric.get(label, "") for label in labels)
            yield ",".join(map(_field, fields)) + "\n"


def _field(text: str) -> str:
    begins_with_space = text[:1].isspace() and text[0] not in _NO_SPACES
    if not re.search('[,"\r\n]', text) and not begins_with_space and text != r"\.":
        return text
    return '"' + text.replace('"', '""') + '"'
