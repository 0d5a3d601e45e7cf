"""The command `kubeshard report`."""

from __future__ import annotations

from pathlib import Path

import click

from kubeshard.commands.options import Command

DEFAULT = "comparison.html"


@click.command(
    cls=Command,
    short_help="Make the page of a run, or one that compares runs.",
    examples=(
        "kubeshard report runs/basic-1",
        "kubeshard report runs/singleton runs/external -o evaluation.html",
    ),
)
@click.argument(
    "runs",
    metavar="RUN...",
    nargs=-1,
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The page to write (default: report.html in the folder of a single run; {DEFAULT} for several).",
)
def report(runs: tuple[Path, ...], output: Path | None) -> None:
    """Make the page of a recorded experiment, or one page that compares several.

    RUN is the folder of an experiment. A page is one HTML file that needs no network. Its charts are also written as
    SVG, PNG and CSV, into a folder beside it. Percentiles are those of all samples. A run that was cut off has a page
    of what it recorded until then. Several runs are compared with the singleton of the same load, and by the number of
    instances.
    """
    from kubeshard_lab.experiment.report.compare import compare
    from kubeshard_lab.experiment.report.page import write

    click.echo(write(runs[0], output) if len(runs) == 1 else compare(runs, output or Path(DEFAULT)))
