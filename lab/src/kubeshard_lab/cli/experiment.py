"""The command `kubeshard experiment`."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeshard.commands.options import CLUSTER_VARIABLE, Command, apply_option, cluster_options, new_folder
from kubeshard.core.errors import ConfigurationError, KubeshardError, Unprepared
from kubeshard.version import how_to_install
from kubeshard_lab.cli.experiment_options import Asked, DurationType, load_options
from kubeshard_lab.experiment.scenarios import SCENARIOS

if TYPE_CHECKING:
    from kubeshard_lab.experiment.progress import Screen
    from kubeshard_lab.experiment.recording import RunRecord
    from kubeshard_lab.experiment.running import Experiment, Settings, Wanted
    from kubeshard_lab.experiment.subject import Subject

INVALID = 3
INTERRUPTED = 130
_LAST = 60.0
"""Seconds at the end of the load, when there are the most objects, of which the answer tells the rate."""
_PROGRAMS = click.Choice(("kubeshard", "go"))


def _list_scenarios(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        width = max(map(len, SCENARIOS))
        for name, scenario in SCENARIOS.items():
            click.echo(f"{name:{width}}  {scenario.summary}")
        context.exit()


@click.command(
    cls=Command,
    short_help="Measure how much load operator and sharder can carry.",
    environment={
        "KUBESHARD_GO_SHARDER": "the Go project's sharder, for --program go",
        "KUBESHARD_GO_OPERATOR": "the Go project's operator, for --program go",
        "KUBEBUILDER_ASSETS": "the control plane, for --on real (default: what `make kube` built)",
        **CLUSTER_VARIABLE,
    },
    examples=(
        "kubeshard experiment basic",
        "kubeshard experiment basic --scale 0.05 --duration 2m",
        "# the same load on one instance, and without a sharder service",
        "kubeshard experiment basic --setup singleton",
        "kubeshard experiment basic --setup in-manager",
        "# in a cluster where the operator and a sharder are installed",
        "kubeshard experiment basic --on cluster --context test",
        "# what ten instances would carry",
        "kubeshard experiment scale-out --on simulation --instances 10 --workers 1 --scale 4 --duration 1m",
        "kubeshard experiment --list",
    ),
)
@click.argument("scenario", metavar="SCENARIO", type=click.Choice(list(SCENARIOS)))
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_scenarios,
    help="List the scenarios.",
)
@click.option(
    "--setup",
    "setup_kind",
    type=click.Choice(("singleton", "in-manager", "ranges", "external")),
    default=None,
    show_default="external, with --operator singleton",
    help="One instance; instances one of which is the sharder, by labels or by ranges; or instances and two sharders.",
)
@click.option(
    "--on",
    "server",
    type=click.Choice(("embedded", "real", "cluster", "simulation")),
    default="embedded",
    show_default=True,
    help="kubeshard's own API server, or etcd and kube-apiserver, both started for this run; a cluster in which "
    "operator and sharder are installed; or a simulation on virtual time, with more instances than this machine could "
    "run.",
)
@load_options
@click.option(
    "--instances", metavar="NUMBER", type=click.IntRange(1, 50), help="Of the operator (default: 3)."
)
@click.option(
    "--workers",
    metavar="NUMBER",
    type=click.IntRange(1),
    help="Of each instance (default: 15, a singleton's 50).",
)
@click.option("--program", type=_PROGRAMS, default="kubeshard", show_default=True, help="Whose programs.")
@click.option("--operator-program", type=_PROGRAMS, help="Whose operator, if another.")
@click.option("--sharder-program", type=_PROGRAMS, help="Whose sharder, if another.")
@click.option(
    "--go-operator",
    metavar="FILE",
    envvar="KUBESHARD_GO_OPERATOR",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The Go project's operator.",
)
@click.option(
    "--go-sharder",
    metavar="FILE",
    envvar="KUBESHARD_GO_SHARDER",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The Go project's sharder.",
)
@click.option(
    "--parallel",
    metavar="NUMBER",
    type=click.IntRange(10),
    default=256,
    show_default=True,
    help="How many requests may be unanswered at a time.",
)
@click.option(
    "--latency",
    metavar="DURATION",
    type=DurationType(),
    help="Delay each answer of the embedded API server, as if it were on another machine, such as 10ms (default: not "
    "at all; in a simulation 10ms).",
)
@click.option(
    "--costs",
    metavar="NAME=VALUE,...",
    default="",
    help="What work costs in a simulation: a program's CPU time for each request that it sends (default: "
    "request=0.8ms) and each event that it reads (event=0.2ms), and how many writes, or three times as many reads, "
    "per second the API server answers (such as rate=333; default: unlimited).",
)
@click.option(
    "--operator",
    "own",
    metavar="MODULE:MANAGER",
    help="Load your own operator instead of the webhosting operator; needs --template.",
)
@click.option(
    "--template",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A manifest of your kind, with $name, $number and $random.",
)
@apply_option("What your operator needs, such as definitions and a ControllerRing; may be repeated.")
@click.option(
    "--ready",
    metavar="CONDITION",
    default="Ready",
    show_default=True,
    help="When your objects are ready: a condition's type, or status.FIELD=VALUE.",
)
@click.option(
    "--ring",
    metavar="NAME",
    help="Your operator's ring, for --setup in-manager and external; with --on cluster the ring of the webhosting "
    "operator (default: webhosting-operator).",
)
@click.option(
    "--controller", metavar="NAME", help="Whose latencies count (default: the only one of your operator)."
)
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for the run (default: experiments/TIME-SCENARIO-SETUP).",
)
@cluster_options
def experiment(output: Path | None, **options: Any) -> None:
    """Load the webhosting operator on this machine, and measure what its users wait for.

    Starts an API server, sharders and instances of the operator, each in a process of its own; creates, changes and
    deletes Websites at the scenario's rates, whether or not they keep up; and writes all that was measured to a folder.
    The first Ctrl-C ends the load and keeps what was measured; the second ends everything at once.

    With --on cluster nothing is started: the load goes to a cluster in which operator and sharder are installed, and
    what it creates is removed at the end. --program and --workers then only say, for the report, what is installed.

    With --on simulation all programs are simulated in this one, on virtual time: the production classes, but an API
    server in memory, and work costs what you say. So any machine can show what 50 instances would do; it takes longer
    than they would. To look for faults, use `kubeshard simulate`.

    Exit code: 0 if all service levels were kept, 1 if one was missed or the run broke off, 3 if the run is not valid:
    because the machine, the API server or this tool was the limit, so that its figures say nothing about controllers.
    """
    asked = Asked.of(options)
    place = asked.place
    try:
        from kubeshard_lab.experiment.running import NotAtWork, ServerLost, Settings
        from kubeshard_lab.experiment.servers import ServerFailed

        if place.server != "cluster":
            from kubeshard_lab.experiment import processes  # noqa: F401 - whether psutil is installed
            from kubeshard_lab.experiment.screen import Terminal  # noqa: F401 - whether it is installed
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0].replace("_", "-")
        raise ConfigurationError(f"experiments need the package {missing}: {how_to_install('lab')}") from None
    from kubeshard.runtime.loop import loop_factory
    from kubeshard_lab.experiment.cluster import LeftBehind, check_scenario

    load, factory = asked.load, loop_factory()
    settings = partial(
        Settings, load.wanted, server=place.server, scale=load.scale, seed=load.seed, parallel=load.parallel
    )
    if place.server == "cluster":
        check_scenario(load.wanted)
        conducted = _conducted_on_cluster(settings(setup=asked.installed()), output, asked)
    else:
        setup, subject = asked.setup()
        whole = settings(setup=setup, latency=place.delay, costs=place.all_costs)
        folder = _new_folder(output, load.scenario, setup.kind)
        if place.server == "simulation":
            from kubeshard_lab.virtual_time import VirtualTimeLoop

            factory = partial(VirtualTimeLoop, math.inf)
            conducted = _conducted_on_virtual_time(whole, place.charged, folder, subject)
        else:
            conducted = _conducted_here(whole, folder, subject)
    with asyncio.Runner(loop_factory=factory) as runner:
        try:
            run, interrupted = runner.run(conducted)
        except (NotAtWork, ServerLost, ServerFailed, LeftBehind) as error:
            raise click.ClickException(str(error)) from None
    if interrupted:
        raise SystemExit(INTERRUPTED)
    if run.invalid:
        raise SystemExit(INVALID)
    if any(not level.kept for level in run.levels):
        raise SystemExit(1)


def _new_folder(given: Path | None, scenario: str, setup: str) -> Path:
    from datetime import UTC, datetime

    from kubeshard.runtime.world import REAL_WORLD

    if given is None:
        time = datetime.fromtimestamp(REAL_WORLD.clock.wall(), UTC)
        given = Path("experiments", f"{time:%Y-%m-%dT%H-%M-%S}-{scenario}-{setup}")
    return new_folder("--output", given)


async def _conducted_here(
    settings: Settings, folder: Path, subject: Callable[[str], Subject]
) -> tuple[RunRecord, bool]:
    from kubeshard.runtime.world import REAL_WORLD
    from kubeshard_lab.experiment import servers
    from kubeshard_lab.experiment.local import OnThisMachine

    environment, wanted = dict(os.environ), _wanted(settings, folder, subject)
    gates = [f"{name}=true" for name in settings.setup.feature_gates]
    if settings.server == "real":
        serving = servers.real(folder / "logs" / "control-plane", gates)
    else:
        serving = servers.embedded(folder / "logs", environment, settings.latency, gates)
    return await _conducted(OnThisMachine(wanted, REAL_WORLD, serving, environment), wanted)


async def _conducted_on_virtual_time(
    settings: Settings, costs: Mapping[str, float], folder: Path, subject: Callable[[str], Subject]
) -> tuple[RunRecord, bool]:
    from kubeshard_lab.examples.webhosting.api import RING
    from kubeshard_lab.experiment.simulated import OnVirtualTime
    from kubeshard_lab.simulation.costs import Costs, costly_cluster

    given = Costs(
        latency=settings.latency, rate=costs["rate"], request_cpu=costs["request"], event_cpu=costs["event"]
    )
    # Runs with other settings are other runs, with another id.
    seed = zlib.crc32(repr(settings).encode())
    async with costly_cluster(given, RING, seed, settings.setup.feature_gates) as (cluster, charged):
        wanted = _wanted(settings, folder, subject)
        return await _conducted(OnVirtualTime(wanted, cluster, charged), wanted)


async def _conducted_on_cluster(
    settings: Settings, output: Path | None, asked: Asked
) -> tuple[RunRecord, bool]:
    from kubeshard.client.connecting import connected
    from kubeshard.runtime.world import REAL_WORLD
    from kubeshard_lab.examples.webhosting.api import RING
    from kubeshard_lab.experiment.cluster import OnCluster, found
    from kubeshard_lab.experiment.websites import Websites

    ring, scenario, place = asked.own.ring or RING, settings.scenario, asked.place
    async with connected(place.kubeconfig, place.context, world=REAL_WORLD, patient=False) as client:
        kind, shards = await found(client, scenario, ring)
        settings = settings._replace(setup=settings.setup._replace(kind=kind, instances=shards))
        folder = _new_folder(output, scenario.name, "cluster")
        wanted = _wanted(settings, folder, lambda run: Websites(run, scenario.name, ring))
        conducted = OnCluster(wanted, REAL_WORLD, client)
        removal = f". What it creates is removed at its end; if it is killed, with: {conducted.removal}"
        return await _conducted(conducted, wanted, removal)


async def _conducted(conducted: Experiment, wanted: Wanted, more: str = "") -> tuple[RunRecord, bool]:
    folder = wanted.folder
    wanted.screen.say(f"{conducted.run.title}; the run is recorded in {folder}{more}")
    interrupted = _stop_at_interrupt(conducted)
    try:
        await conducted.conduct()
    except Unprepared:
        raise  # before there was any load
    except KubeshardError:
        _judged(folder, conducted.controller)
        raise
    return _judged(folder, conducted.controller), interrupted.is_set()


def _wanted(settings: Settings, folder: Path, subject: Callable[[str], Subject]) -> Wanted:
    from kubeshard_lab.experiment.running import Wanted
    from kubeshard_lab.virtual_world import SeededRng

    return Wanted(settings, folder, lambda part: SeededRng(settings.seed * 2 + part), _screen(), subject)


def _screen() -> Screen:
    """Lines where rich is not installed."""
    if find_spec("rich") is None:
        from kubeshard_lab.experiment.progress import Lines

        return Lines(click.echo)
    from rich.console import Console

    from kubeshard_lab.experiment.screen import Terminal

    return Terminal(Console(highlight=False))


def _stop_at_interrupt(conducted: Experiment) -> asyncio.Event:
    """The first SIGINT or SIGTERM ends the load, the second the process; the kernel then kills its children."""
    loop, interrupted = asyncio.get_running_loop(), asyncio.Event()

    def interrupt() -> None:
        if interrupted.is_set():
            os._exit(INTERRUPTED)
        interrupted.set()
        conducted.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    return interrupted


def _judged(folder: Path, controller: str) -> RunRecord:
    """Judges the run, makes its page, and says how it went."""
    from kubeshard_lab.experiment import levels
    from kubeshard_lab.experiment.recording import read_run

    levels.judge(folder, controller)
    run = read_run(folder)
    for note in run.notes:
        click.echo(note)
    for level in run.levels:
        worst = "nothing was measured" if level.worst is None else f"{level.worst:.3f} s"
        click.echo(f"{'kept' if level.kept else 'MISSED'}: {level.name}: {worst} (at most {level.limit:g} s)")
    for sentence in run.invalid:
        click.echo(f"NOT VALID: {sentence}", err=True)
    if run.finished and not run.invalid:
        click.echo(_answer(run, folder))
    if find_spec("matplotlib") is None:
        click.echo(
            f"recorded in {folder}; `kubeshard report` makes its page where the extra lab is installed"
        )
        return run
    from kubeshard_lab.experiment.report import page

    click.echo(f"recorded in {folder}; its report is {page.write(folder)}")
    return run


def _answer(run: RunRecord, folder: Path) -> str:
    """What the run says about capacity: about the load that was measured, and no other."""
    from kubeshard_lab.experiment.recording import Request, read

    last = [each for each in read(folder, Request) if each.outcome == "ok" and each.due >= run.ended - _LAST]
    rate = len(last) / min(_LAST, run.ended - run.began)
    missed = [level.name for level in run.levels if not level.kept]
    many = run.instances > 1
    who = f"{run.instances} instance{'s' if many else ''} of {run.workers} workers"
    if missed:
        return f"{who} {'do' if many else 'does'} not carry {rate:.1f} changes/s here: {', '.join(missed)}"
    return f"{who} {'carry' if many else 'carries'} {rate:.1f} changes/s here; whether more is carried was not measured"
