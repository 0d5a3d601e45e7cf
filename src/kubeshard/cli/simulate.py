"""The commands `kubeshard simulate ...`."""

from __future__ import annotations

import logging
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeshard.commands.options import Command
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.clock import SystemClock
from kubeshard.version import how_to_install

if TYPE_CHECKING:
    from kubeshard.simulation.oracles import SimulationResult
    from kubeshard.simulation.script import Script, Sharder

EVENTS = 40
"""How many of the last events before a failure are shown."""

ABLATION_SEEDS = "601-612"


@click.group(short_help="Inflict random faults on a whole ring, on virtual time.")
def simulate() -> None:
    """Runs sharders, shards and an API server on virtual time, with the production classes, and inflicts faults.

    Oracles watch: no two processes work on one object, no write lands after its object was handed over, every object
    has an owner in the end.
    """


@simulate.command(
    cls=Command,
    short_help="Explore random faults, and shrink what fails.",
    examples=(
        "kubeshard simulate run --seeds 1-20 --minutes 30",
        "kubeshard simulate run --faults pause,kill --sharder in-manager",
        "kubeshard simulate run --without watchdog --faults pause",
    ),
)
@click.option("--seeds", metavar="FROM-TO", default="1-5", show_default=True, help="Seeds, or one.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Virtual minutes of faults for each seed.",
)
@click.option("--faults", metavar="KINDS", default="", help="Only these kinds of faults (default: all).")
@click.option(
    "--sharder",
    type=click.Choice(("service", "in-manager", "both")),
    default="service",
    show_default=True,
    help="Where the sharder runs: in processes of its own, in the elected shard, or both.",
)
@click.option(
    "--objects", type=click.IntRange(min=1), default=30, show_default=True, help="Number of objects."
)
@click.option(
    "--calm", type=float, default=1.0, show_default=True, help="Factor for the time between faults."
)
@click.option("--without", metavar="MEASURES", default="", help="Switch these measures off (see `measures`).")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("simulated"),
    show_default=True,
    help="Directory for the scripts of failures.",
)
@click.option("--no-shrink", "whole", is_flag=True, help="Do not shrink the script of the first failure.")
def run(
    seeds: str,
    minutes: float,
    faults: str,
    sharder: Sharder,
    objects: int,
    calm: float,
    without: str,
    output: Path,
    whole: bool,
) -> None:
    """Plays random faults, one script for each seed.

    Exits with 1 if an oracle noticed something, or if a kind of fault that was asked for never had an effect. The
    script of each failure is written to a file at once, which `kubeshard simulate replay` plays again; in the end, that
    of the first one is shrunk.
    """
    _require_apiserver()
    from kubeshard.simulation.running import drawn, play
    from kubeshard.simulation.script import Script

    logging.disable()  # a simulation is full of warnings, and what matters is in its events
    clock, kinds, numbers, totals = SystemClock(), _kinds(faults), _numbers(seeds), Counter[str]()
    failed: tuple[Script, SimulationResult] | None = None
    for seed in numbers:
        script = drawn(
            Script(
                seed=seed,
                minutes=minutes,
                objects=objects,
                calm=calm,
                sharder=sharder,
                without=_listed(without),
            ),
            kinds,
        )
        began = clock.monotonic()
        result = play(script)
        totals += result.counts
        verdict = _verdict(result)
        click.echo(
            f"seed {seed}: {verdict}; {len(script.faults)} faults in {minutes:g} min, "
            f"{result.counts['writes']} writes, owned after {result.owned_after:.0f} s, "
            f"{clock.monotonic() - began:.0f} s"
        )
        if result.breaks:
            click.echo(f"kubeshard simulate replay {_saved(script, output)}")
            failed = failed or (script, result)
    _print_totals(totals)
    if failed is not None:
        _report_failure(*failed, output, not whole)
        raise SystemExit(1)
    if kinds and (idle := [kind for kind in kinds if not totals[f"effects: {kind}"]]):
        click.echo(
            f"these faults had no effect: {', '.join(idle)}; more seeds or minutes may reach them", err=True
        )
        raise SystemExit(1)


@simulate.command(
    cls=Command,
    short_help="Play a script again.",
    examples=(
        "kubeshard simulate replay simulated/seed-7.json",
        "kubeshard simulate replay simulated/seed-7.json --picture failure.svg",
    ),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--events", type=int, default=EVENTS, show_default=True, help="Last events to show of a failure."
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw what led to the first violation, as SVG, into this file.",
)
def replay(file: Path, events: int, picture: Path | None) -> None:
    """Plays the script in the file, and shows what went wrong. Exits with 1 if anything did.

    With --picture, also who owned the object and worked on it, the Leases, the writes and the faults around the first
    violation, as text and as SVG.
    """
    _require_apiserver()
    from kubeshard.simulation.faults.injection import KINDS
    from kubeshard.simulation.running import play
    from kubeshard.simulation.script import Script

    logging.disable()
    result = play(Script.load(file, KINDS))
    click.echo(_verdict(result))
    if result.breaks:
        if picture is None:
            _print_events(result, events)
        else:
            _draw(result, picture)
        raise SystemExit(1)


@simulate.command(
    cls=Command,
    short_help="List the faults that can be inflicted.",
    examples=("kubeshard simulate faults", "kubeshard simulate run --faults kill,late"),
)
def faults() -> None:
    """Lists each kind of fault, and what happens."""
    _require_apiserver()
    from kubeshard.simulation.faults.injection import AIMED, KINDS, summary

    for kind in sorted(KINDS):
        only = " (only if it is asked for)" if kind in AIMED else ""
        click.echo(f"{kind:24} {summary(kind)}{only}")


@simulate.command(
    cls=Command,
    short_help="Switch each measure off, and see whether an oracle notices.",
    examples=("kubeshard simulate measures", "kubeshard simulate measures --only fence,watchdog"),
)
@click.option("--only", metavar="NAMES", default="", help="Only these measures.")
@click.option("--seeds", metavar="FROM-TO", help="Seeds to try for each (default: 601-612).")
def measures(only: str, seeds: str | None) -> None:
    """Prints a table: each measure, what is inflicted, and the oracle that noticed its absence.

    Exits with 1 if the absence of a measure was not noticed.
    """
    _require_apiserver()
    from kubeshard.simulation.measures import MEASURES, measures_named
    from kubeshard.simulation.running import ablated

    logging.disable()
    clock, missed = SystemClock(), []
    for measure in measures_named(_listed(only)) if only else MEASURES:
        began, noticed = clock.monotonic(), "NOT NOTICED"
        for seed in _numbers(seeds or ABLATION_SEEDS):
            result = ablated(measure, seed)
            if result.broken[measure.oracle]:
                noticed = (
                    f"{measure.oracle}, with seed {seed} after {result.first[0] if result.first else 0:.0f} s"
                )
                break
        else:
            missed.append(measure.name)
        took = clock.monotonic() - began
        click.echo(f"{measure.name:30} {'+'.join(measure.faults):40} {noticed} ({took:.0f} s)")
    if missed:
        click.echo(f"not noticed: {', '.join(missed)}", err=True)
        raise SystemExit(1)


def _require_apiserver() -> None:
    if find_spec("kubeshard_apiserver") is None:
        raise ConfigurationError(f"simulations need the embedded API server: {how_to_install('apiserver')}")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _kinds(text: str) -> tuple[str, ...]:
    """Raises ConfigurationError for faults that do not exist."""
    from kubeshard.simulation.faults.injection import KINDS

    kinds = _listed(text)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ConfigurationError(
            f"there is no fault {', '.join(unknown)}; there are: {', '.join(sorted(KINDS))}"
        )
    return kinds


def _numbers(text: str) -> range:
    """Raises ConfigurationError unless it is a number, or two with a dash."""
    first, _, last = text.partition("-")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise ConfigurationError(f"seeds must be as 1-20 or 7, not {text}") from None


def _verdict(result: SimulationResult) -> str:
    if not result.breaks:
        return "all hold"
    return "BROKEN: " + ", ".join(f"{oracle} ({count})" for oracle, count in sorted(result.broken.items()))


def _print_totals(totals: Counter[str]) -> None:
    for what, count in sorted(totals.items()):
        click.echo(f"{count:9} {what}")


def _report_failure(script: Script, result: SimulationResult, output: Path, shrink: bool) -> None:
    from kubeshard.simulation.running import play
    from kubeshard.simulation.script import shrunk

    click.echo(f"seed {script.seed}:")
    _print_events(result, EVENTS)
    if not shrink or len(script.faults) < 2:
        return
    oracle = min(result.broken)
    click.echo("shrinking its script, which takes many runs (Ctrl-C ends it; --no-shrink leaves it out) ...")
    small = shrunk(script, lambda each: play(each).broken[oracle] > 0, tell=click.echo)
    small.save(output / f"seed-{script.seed}-shrunk.json")
    faults = ", ".join(f"{fault.kind} after {fault.after:.0f} s" for fault in small.faults)
    click.echo(
        f"{faults or 'no fault'} is enough: kubeshard simulate replay {output}/seed-{script.seed}-shrunk.json"
    )


def _saved(script: Script, output: Path) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    file = output / f"seed-{script.seed}.json"
    script.save(file)
    return file


def _draw(result: SimulationResult, file: Path) -> None:
    from kubeshard.simulation.picture import as_svg, as_text, picture_of

    at, name = result.first or (0.0, "")
    picture = picture_of(result.history, at, name, result.breaks[0].partition(" ")[2])
    click.echo(as_text(picture))
    file.write_text(as_svg(picture), encoding="utf-8")
    click.echo(f"drawn to {file}")


def _print_events(result: SimulationResult, count: int) -> None:
    """Shows what was noticed, and the events up to the first of it."""
    for line in result.breaks[:10]:
        click.echo(f"  {line}")
    events = list(result.events)
    first = next((number for number, event in enumerate(events) if "BROKEN" in event), len(events) - 1)
    click.echo("last events:")
    for event in events[max(0, first + 1 - count) : first + 1]:
        click.echo(f"  {event}")
