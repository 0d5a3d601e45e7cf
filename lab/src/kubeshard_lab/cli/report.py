"""The command `kubeshard report`."""

from __future__ import annotations

from pathlib import Path

import click

from kubeshard.commands.options import Command


@click.command(
    cls=Command,
    short_help="Make the page of a run.",
    examples=("kubeshard report runs/basic-1", "kubeshard report runs/basic-1 -o evaluation.html"),
)
@click.argument("run", metavar="RUN", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page to write (default: report.html in the folder of the run).",
)
def report(run: Path, output: Path | None) -> None:
    """Make the page of a recorded experiment.

    RUN is the folder of an experiment. A page is one HTML file that needs no network. Its charts are also written as
    SVG, PNG and CSV, into a folder beside it. Percentiles are those of all samples. A run that was cut off has a page
    of what it recorded until then.
    """
    from kubeshard_lab.experiment.report.page import write

    click.echo(write(run, output))
