"""The command `kubeshard measure`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeshard.cli.yaml_files import read_documents, source_name
from kubeshard.commands.options import Command
from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.config_file import Duration

if TYPE_CHECKING:
    from kubeshard_lab.experiment.measuring.measurement import Findings
    from kubeshard_lab.experiment.measuring.queries import Query, Window

STANDARD_OUTPUT = "-"


@click.command(
    cls=Command,
    short_help="Ask a Prometheus for figures, and check service levels.",
    examples=(
        "kubeshard measure basic -o results/ --start -20m --end -5m",
        "kubeshard measure queries.yaml --prometheus-url https://prometheus.example.com --bearer-token-file token",
        "kubeshard measure basic --print > queries.yaml",
    ),
)
@click.argument("source", metavar="QUERIES_FILE|SCENARIO|-")
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
    help="The Prometheus. Its path is kept, and its user and password are sent.",
)
@click.option(
    "--step",
    metavar="DURATION",
    default="15s",
    show_default=True,
    help="Time between the points of range queries.",
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
@click.option(
    "--ca-file",
    "ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Certificates of authorities to trust (default: the system's).",
)
@click.option("--print", "printed", is_flag=True, help="Print the queries as a file instead of asking them.")
def measure(
    source: str,
    output_dir: str,
    output_prefix: str,
    prometheus_url: str,
    step: str,
    start: str,
    end: str,
    token: Path | None,
    ca: Path | None,
    printed: bool,
) -> None:
    """Ask a Prometheus the queries of a file, or those for a SCENARIO of experiments, and write a CSV file for each.

    A query with an `slo` is a service level, which no value may exceed. The exit code is 1 if one is not kept, or if a
    query that is not `optional` has no answer. A query may take 10 seconds. The scenarios are those that
    `kubeshard experiment --list` lists.
    """
    import asyncio

    from kubeshard_lab.experiment.measuring.standard_queries import as_file

    queries = _queries(source)
    if printed:
        from kubeshard.core.yaml_output import as_yaml

        click.echo(as_yaml(as_file(queries)), nl=False)
        return
    window = _window(start, end, step)
    outcome = asyncio.run(_measured(queries, window, prometheus_url, token, ca, output_dir, output_prefix))
    if outcome.problem:
        raise click.ClickException(outcome.problem)
    levels = f"{outcome.levels} service level{'s' if outcome.levels != 1 else ''} kept"
    _say(levels if outcome.levels else "no service levels", output_dir)


def _queries(source: str) -> list[Query]:
    from kubeshard_lab.experiment.measuring.queries import parse_queries
    from kubeshard_lab.experiment.measuring.standard_queries import queries_of
    from kubeshard_lab.experiment.scenarios import SCENARIOS

    path = Path(source)
    if source in SCENARIOS and not path.exists():
        return queries_of(source)
    if not path.exists() and "/" not in source and not path.suffix and source != "-":
        raise ConfigurationError(f"{source}: neither a file nor a scenario: those are {', '.join(SCENARIOS)}")
    found = parse_queries(read_documents(path), source_name(path))
    for sentence in found.unknown:
        click.echo(f"Warning: {source_name(path)}: {sentence}", err=True)
    return list(found.queries)


def _window(start: str, end: str, step: str) -> Window:
    from kubeshard.manager.config_file import Duration
    from kubeshard.runtime.world import REAL_WORLD
    from kubeshard_lab.experiment.measuring.queries import Window

    now = REAL_WORLD.clock.wall()
    found = []
    for hint, text in (("--start", start), ("--end", end)):
        try:
            found.append(parse_time(text, now))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint=hint) from None
    try:
        seconds = Duration.parse(step)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--step") from None
    if seconds <= 0:
        raise click.BadParameter("must be more than 0", param_hint="--step")
    if found[0] >= found[1]:
        raise click.BadParameter("must be before --end", param_hint="--start")
    return Window(found[0], found[1], seconds)


async def _measured(
    queries: Iterable[Query],
    window: Window,
    url: str,
    token: Path | None,
    ca: Path | None,
    output_dir: str,
    prefix: str,
) -> Findings:
    from kubeshard.runtime.tls import Tls
    from kubeshard.runtime.world import REAL_WORLD
    from kubeshard_lab.experiment.measuring.measurement import ask_all, rfc3339
    from kubeshard_lab.experiment.measuring.prometheus import Prometheus, Unusable

    def write(name: str, lines: Iterable[str]) -> None:
        file = f"{prefix}{name}.csv"
        if output_dir == STANDARD_OUTPUT:
            click.echo(f"# {file}\n{''.join(lines)}", nl=False)
            return
        try:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            with (Path(output_dir) / file).open("w", encoding="utf-8", newline="") as output:
                output.writelines(lines)
        except OSError as error:
            raise click.ClickException(f"{Path(output_dir) / file}: {error.strerror or error}") from None

    def say(sentence: str) -> None:
        _say(sentence, output_dir)

    tls = Tls(ca=_read(ca) if ca else None)
    async with Prometheus(
        url, REAL_WORLD.connect, tls, _read(token).strip() if token else None
    ) as prometheus:
        say(f"from {rfc3339(window.start)} to {rfc3339(window.end)}, each {window.step:g} s")
        try:
            return await ask_all(queries, window, prometheus, write, say)
        except Unusable as error:
            raise click.ClickException(str(error)) from None


def _say(sentence: str, output_dir: str) -> None:
    """Beside the CSV, if that is written to standard output."""
    click.echo(sentence, err=output_dir == STANDARD_OUTPUT)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_SECONDS = re.compile(r"[-+]?\d+")


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
