"""The commands `kubeshard simulate ...`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kubeshard.commands.options import Command, apply_option
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.clock import SystemClock

if TYPE_CHECKING:
    from kubeshard_lab.simulation.digest import Recorder
    from kubeshard_lab.simulation.operators.workload import Author
    from kubeshard_lab.simulation.oracles import SimulationResult
    from kubeshard_lab.simulation.script import Delivery, Operator, Script, Sharder

EVENTS = 30
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(short_help="Inflict random faults on your operator, or on a whole ring, on virtual time.")
def simulate() -> None:
    """Runs your operator, or sharders and shards, and an API server on virtual time, and inflicts faults.

    Oracles watch: no two processes work on one object, no write lands after its object was handed over, no object is
    forgotten in the end.
    """


@simulate.command(
    cls=Command,
    short_help="Explore random faults, and shrink what fails.",
    examples=(
        "kubeshard simulate run my_operator:manager --always my_invariants:at_most_one_job",
        "# the rings of kubeshard itself",
        "kubeshard simulate run --seeds 1-20 --minutes 30",
        "kubeshard simulate run --faults pause,kill --sharder in-manager",
    ),
)
@click.argument("target", metavar="[MODULE[:MANAGER]]", required=False)
@click.option(
    "--template",
    "templates",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, path_type=Path, dir_okay=False),
    help="An object that your operator works on, with $name, $number and $random; may be repeated (default: made up "
    "from the definitions of its kinds).",
)
@apply_option(
    "First apply this YAML file, or those in this folder; may be repeated. Definitions of the operator's own kinds "
    "need not be among them."
)
@click.option(
    "--always",
    metavar="MODULE:FUNCTION",
    multiple=True,
    help="An invariant of yours, called after every write; may be repeated.",
)
@click.option(
    "--eventually",
    metavar="MODULE:FUNCTION",
    multiple=True,
    help="What must hold some time after all faults are over; may be repeated.",
)
@click.option(
    "--instances",
    type=click.IntRange(min=1),
    help="Of your operator (default: 3 shards, 2 that take turns, or 1).",
)
@click.option("--seeds", metavar="FROM-TO", default="1-5", show_default=True, help="Seeds, or one.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Virtual minutes of faults for each seed.",
)
@click.option(
    "--faults",
    metavar="KINDS",
    default="all",
    show_default=True,
    help="Only these kinds of faults, separated by commas, or none.",
)
@click.option(
    "--sharder",
    type=click.Choice(("service", "in-manager", "both")),
    help="Where the sharder runs: in processes of its own, in the elected shard, or both (default: service, or "
    "in-manager if clusters are shared out).",
)
@click.option(
    "--delivery",
    type=click.Choice(("labels", "uid", "namespace", "cluster")),
    default="labels",
    show_default=True,
    help="How objects are shared out: by labels, by hash ranges of their uids or namespaces, or with their clusters.",
)
@click.option(
    "--objects", type=click.IntRange(min=1), help="Number of objects (default: 10 of your operator, or 30)."
)
@click.option(
    "--calm",
    type=float,
    default=1.0,
    show_default=True,
    help="Factor for the time between faults, and between changes of objects.",
)
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
    target: str | None,
    templates: Sequence[Path],
    manifests: Sequence[Path],
    always: tuple[str, ...],
    eventually: tuple[str, ...],
    instances: int | None,
    seeds: str,
    minutes: float,
    faults: str,
    sharder: Sharder | None,
    delivery: Delivery,
    objects: int | None,
    calm: float,
    output: Path,
    whole: bool,
) -> None:
    """Plays random faults, one script for each seed: with your operator MODULE:MANAGER, or else with a ring.

    MANAGER (default: manager) is a Manager in the module, or a function without arguments that makes one. Each
    simulated process imports the module anew.

    Exits with 1 if an oracle noticed something, or if a kind of fault that was asked for never had an effect. The
    script of each failure is written to a file at once, which `kubeshard simulate replay` plays again; in the end, that
    of the first one is shrunk.
    """
    from kubeshard_lab.simulation.faults.injection import apply_to
    from kubeshard_lab.simulation.running import drawn
    from kubeshard_lab.simulation.script import Script

    click.get_current_context().with_resource(_silence())
    operator = _operator(target, templates, manifests, always, eventually, instances)
    if operator and (sharder, delivery) != (None, "labels"):
        raise ConfigurationError(
            "--sharder and --delivery are for rings without an operator: a manager says where its sharder is, and how "
            "it shares out objects"
        )
    if delivery == "cluster" and sharder not in (None, "in-manager"):
        raise ConfigurationError("--sharder: what shares out clusters is in the shards: leave it out")
    sharder = sharder or ("in-manager" if delivery == "cluster" else "service")
    allowed = _faults_of(operator) if operator else tuple(sorted(apply_to(delivery)))
    kinds = () if faults in ("all", "none") else _kinds(faults, allowed)
    clock, numbers, totals = SystemClock(), _numbers(seeds), Counter[str]()
    repeats: bool | None = None
    failed: tuple[Script, SimulationResult] | None = None
    for seed in numbers:
        script = Script(
            seed=seed,
            minutes=minutes,
            objects=objects or (10 if operator else 30),
            calm=calm,
            sharder=sharder,
            delivery=delivery,
            operator=operator,
        )
        if faults != "none":
            script = drawn(script, kinds or (allowed if operator else ()))
        began = clock.monotonic()
        script, result, recorder = _recorded(script)
        totals += result.counts
        verdict = _verdict(result)
        click.echo(
            f"seed {seed}: {verdict}; {len(script.faults)} faults in {minutes:g} min, "
            f"{result.counts['writes']} writes, settled after {result.owned_after:.0f} s, "
            f"{clock.monotonic() - began:.0f} s"
        )
        if result.breaks:
            output.mkdir(parents=True, exist_ok=True)
            script.save(file := output / f"seed-{script.seed}.json")
            click.echo(f"kubeshard simulate replay {file}")
            failed = failed or (script, result)
        if recorder and repeats is None:
            repeats = _repeats(script, recorder)
    if operator:
        _print_summary(totals)
    else:
        for what, count in sorted(totals.items()):
            click.echo(f"{count:9} {what}")
    if failed is not None:
        _report_failure(*failed, output, shrink=not whole and repeats is not False)
        raise SystemExit(1)
    if kinds and (idle := [kind for kind in kinds if not totals[f"effects: {kind}"]]):
        click.echo(
            f"these faults had no effect: {', '.join(idle)}; more seeds or minutes may reach them", err=True
        )
        raise SystemExit(1)


@simulate.command(
    cls=Command,
    short_help="Play a script again.",
    examples=("kubeshard simulate replay simulated/seed-7.json",),
)
@click.argument("file", type=_FILE)
@click.option(
    "--events",
    type=click.IntRange(min=0),
    default=EVENTS,
    show_default=True,
    help="How many of the events before the violation are shown.",
)
def replay(file: Path, events: int) -> None:
    """Plays the script in the file, and shows what went wrong, and what led to it: who owned the object and worked on
    it, the Leases, the writes, the requests that failed, and the faults. Exits with 1 if anything went wrong.
    """
    from kubeshard_lab.simulation.faults.injection import KINDS
    from kubeshard_lab.simulation.script import Script

    click.get_current_context().with_resource(_silence())
    recorded = Script.load(file, KINDS)
    script, result, _ = _recorded(recorded)
    click.echo(_verdict(result))
    if recorded.digest and script.digest != recorded.digest:
        click.echo(
            "this is not the run that was recorded: the operator or kubeshard has changed since, or the operator "
            "depends on what is different in every process, such as the order of a set of strings",
            err=True,
        )
    if result.breaks:
        _print_violations(result)
        _show(result, events)
        raise SystemExit(1)


@simulate.command(
    cls=Command,
    short_help="List the faults that can be inflicted.",
    examples=("kubeshard simulate faults", "kubeshard simulate run --faults kill,late"),
)
def faults() -> None:
    """Lists each kind of fault, and what happens."""
    from kubeshard_lab.simulation.faults.injection import AIMED, KINDS, summary

    for kind in sorted(KINDS):
        only = " (only if it is asked for)" if kind in AIMED else ""
        click.echo(f"{kind:24} {summary(kind)}{only}")


@contextmanager
def _silence() -> Iterator[None]:
    """A simulation is full of warnings, and what matters is in its events. Errors are heard by an oracle."""
    root, handler = logging.getLogger(), logging.NullHandler()
    level, others = root.level, root.handlers[:]
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.handlers[:] = others
        root.setLevel(level)


def _operator(
    target: str | None,
    templates: Sequence[Path],
    manifests: Sequence[Path],
    always: tuple[str, ...],
    eventually: tuple[str, ...],
    instances: int | None,
) -> Operator | None:
    from kubeshard.cli.yaml_files import objects_in
    from kubeshard_lab.simulation.script import Operator

    if target is None:
        if templates or manifests or always or eventually or instances:
            raise ConfigurationError(
                "--template, --apply, --always, --eventually and --instances are for an operator: name it first, as "
                "in my_operator:manager"
            )
        return None
    return Operator(
        target=target,
        templates=tuple(each.read_text(encoding="utf-8") for each in templates),
        manifests=tuple(each.manifest for path in manifests for each in objects_in(path)),
        always=always,
        eventually=eventually,
        instances=instances or 0,
    )


def _author() -> Author:
    from kubeshard.cli.loading import load_manager
    from kubeshard_lab.simulation.operators.workload import Author

    return Author(load_manager, _invariant)


def _invariant(reference: str) -> Any:
    from kubeshard.cli.loading import load_name

    found = load_name(reference)
    if not callable(found):
        raise ConfigurationError(f"{reference} is no function: write def holds(snapshot): assert ...")
    return found


def _faults_of(operator: Operator) -> tuple[str, ...]:
    """The faults that can be inflicted on it. Raises ConfigurationError for one that cannot be simulated."""
    from kubeshard.cli.loading import load_manager
    from kubeshard_lab.simulation.operators.loading import FreshImports
    from kubeshard_lab.simulation.operators.shape import Shape

    shape = Shape.of(FreshImports(operator.target, load_manager).manager())
    for reference in (*operator.always, *operator.eventually):
        _invariant(reference)
    if operator.instances > 1 and shape.instances == 1:
        raise ConfigurationError(
            "--instances: they would all do the same work: give the Manager leader_election= or sharding="
        )
    return shape.faults


def _recorded(script: Script, until: str = "") -> tuple[Script, SimulationResult, Recorder | None]:
    from kubeshard_lab.simulation.digest import Recorder
    from kubeshard_lab.simulation.operators.running import play_operator
    from kubeshard_lab.simulation.running import play

    if script.operator is None:
        return script, play(script, until=until), None
    recorder = Recorder(lines=False)
    result = play_operator(script, _author(), until=until, digest=recorder)
    return msgspec.structs.replace(script, digest=recorder.digest.value), result, recorder


def _repeats(script: Script, recorder: Recorder) -> bool:
    """Plays the script of an operator again, and says so if that is another run."""
    from kubeshard_lab.simulation.operators.running import difference

    differs = difference(script, _author(), recorder)
    if differs:
        click.echo(
            f"the operator is not repeatable: seed {script.seed} gave two different runs. It depends on the machine's "
            "clock, or on the order of a set. So a script may not show its failure again. The first "
            f"event that differs: {differs[:400]}",
            err=True,
        )
    return not differs


def _kinds(text: str, allowed: Collection[str] = ()) -> tuple[str, ...]:
    """Raises ConfigurationError for faults that do not exist, or are not `allowed`, and if none is named."""
    from kubeshard_lab.simulation.faults.injection import KINDS

    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    if not kinds:
        raise ConfigurationError("--faults names no fault: say which, or all, or none")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ConfigurationError(
            f"there is no fault {', '.join(unknown)}; there are: {', '.join(sorted(KINDS))}"
        )
    if allowed and (other := [kind for kind in kinds if kind not in allowed]):
        raise ConfigurationError(
            f"{', '.join(other)} cannot be inflicted here; what can: {', '.join(allowed)}"
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


def _print_summary(totals: Counter[str]) -> None:
    """What befell an operator, and what it did."""
    click.echo(f"{totals['reconciles']} reconciles, {totals['writes']} writes")
    for what in ("effects", "ends", "failed reconciles", "refused changes"):
        counted = {
            key.partition(": ")[2]: count
            for key, count in sorted(totals.items())
            if key.startswith(f"{what}: ") and count
        }
        if counted:
            told = {"effects": "faults that had effects", "ends": "processes"}.get(what, what)
            click.echo(f"{told}: " + ", ".join(f"{name} ({count})" for name, count in counted.items()))


def _report_failure(script: Script, result: SimulationResult, output: Path, *, shrink: bool) -> None:
    from kubeshard_lab.simulation.script import shrunk

    click.echo(f"seed {script.seed}:")
    _print_violations(result)
    if shrink and script.faults:
        main = result.main
        click.echo(
            "shrinking its script, which takes many runs (Ctrl-C ends it; --no-shrink leaves it out) ..."
        )
        small = shrunk(
            script,
            lambda each: _recorded(each, main.oracle)[1].broken[main.oracle] > 0,
            within=main.at,
            tell=click.echo,
        )
        script, result, _ = _recorded(small)
        file = output / f"seed-{script.seed}-shrunk.json"
        script.save(file)
        faults = ", ".join(f"{fault.kind} after {fault.after:.0f} s" for fault in script.faults)
        click.echo(f"enough to break it: {faults or 'no faults'}\nagain: kubeshard simulate replay {file}")
    _show(result)


def _print_violations(result: SimulationResult) -> None:
    for line in result.breaks[:10]:
        click.echo(f"  {line}")


def _show(result: SimulationResult, events: int = EVENTS) -> None:
    """What led to the violation that matters."""
    from kubeshard_lab.simulation.timeline import timeline

    main = result.main
    others = [each for each in result.violations if each is not main]
    click.echo(timeline(result.history, main.at, main.about, main.title, others=others, most=events))
