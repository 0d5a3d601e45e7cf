"""The command `kubeshard demo`."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from types import FrameType

import click

from kubeshard.core.errors import ConfigurationError


@click.command()
@click.option(
    "--websites",
    default=60,
    show_default=True,
    help="How many Websites to create.",
    type=click.IntRange(1, 5000),
)
@click.option(
    "--lease-seconds",
    default=6,
    show_default=True,
    type=click.IntRange(6, 60),
    help="Duration of all Leases; a dead shard is noticed after two of them. (The default outside of the demo is 15.)",
)
@click.option(
    "--patience",
    default=120,
    show_default=True,
    help="Seconds that a step may take.",
    type=click.IntRange(10),
)
@click.option("--keep", is_flag=True, help="Leave everything running at the end, until Ctrl-C, to play with.")
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for data and logs, which is kept.",
)
def demo(websites: int, lease_seconds: int, patience: int, keep: bool, logs: Path | None) -> None:
    """Watch a ring of shards work on this machine.

    Starts a real Kubernetes API server, two sharders and three shards of the webhosting operator as processes
    of their own, and creates Websites. Then a shard joins, one is killed, one stops in order, and the leading
    sharder is killed; after each, the time is shown until every object was owned again. Nothing is left
    running.

    Needs the control plane that `make kube` builds, or KUBEBUILDER_ASSETS.
    """
    try:
        from kubeshard.cli.demo.play import play
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the demo needs the package {error.name}: pip install 'kubeshard[all]'"
        ) from None

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    with tempfile.TemporaryDirectory(prefix="kubeshard-demo-") as temporary:
        folder = (logs or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            asyncio.run(
                play(folder, websites=websites, lease_seconds=lease_seconds, patience=patience, keep=keep)
            )
        except KeyboardInterrupt:
            click.echo("\nstopped; nothing is left running")
            raise SystemExit(130) from None
