"""The command `kubeshard demo`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click

from kubeshard.commands.options import Command, new_folder
from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install


@click.command(
    cls=Command,
    short_help="Watch a ring of shards work on this machine.",
    examples=(
        "kubeshard demo",
        "# more Websites, and a cluster to look around in afterwards",
        "kubeshard demo --websites 1000 --keep",
        "# without a sharder service: the elected shard is the sharder",
        "kubeshard demo --in-manager",
        "# on etcd and kube-apiserver, after `make kube`",
        "kubeshard demo --real",
    ),
)
@click.option(
    "--real", is_flag=True, help="Use a real kube-apiserver and etcd instead of kubeshard's own API server."
)
@click.option("--in-manager", is_flag=True, help="Run without sharders: the elected shard does their work.")
@click.option(
    "--websites",
    metavar="NUMBER",
    default=60,
    show_default=True,
    help="How many Websites to create.",
    type=click.IntRange(1, 5000),
)
@click.option(
    "--lease-seconds",
    metavar="SECONDS",
    default=None,
    show_default="4, with --real 6",
    type=click.IntRange(4, 60),
    help="Duration of all Leases (15 outside the demo); a dead shard is replaced after twice this time.",
)
@click.option(
    "--patience",
    metavar="SECONDS",
    default=120,
    show_default=True,
    help="How long each step may take.",
    type=click.IntRange(10),
)
@click.option(
    "--keep", is_flag=True, help="Leave everything running at the end for you to try out, until Ctrl-C."
)
@click.option(
    "--logs",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for data and logs, which stays (default: a temporary one, which stays after a failure).",
)
def demo(
    real: bool,
    in_manager: bool,
    websites: int,
    lease_seconds: int | None,
    patience: int,
    keep: bool,
    logs: Path | None,
) -> None:
    """Watch a ring of shards work on this machine for half a minute.

    Starts a Kubernetes API server, two sharders and three shards of the webhosting operator, each in a process of its
    own, and creates Websites. Then a shard joins, one is killed, one stops gracefully, and the leading sharder is
    killed. After each step, the demo shows how long it took until every object was owned again. Most of that time is
    spent waiting for Leases to expire, and these are shorter here than on a cluster. Nothing is left running, and no
    other cluster is touched.

    With --in-manager there are no sharders, no webhook and no ControllerRing: one shard is elected to be the sharder as
    well, and is killed at the end.

    With --real, it needs the control plane that `make kube` builds, or KUBEBUILDER_ASSETS.
    """
    try:
        from kubeshard.runtime.loop import loop_factory
        from kubeshard.runtime.world import REAL_WORLD
        from kubeshard_apiserver.testing.folders import TemporaryFolder
        from kubeshard_lab.demo.play import play
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0].replace("_", "-")
        raise ConfigurationError(f"the demo needs the package {package}: {how_to_install('lab')}") from None

    temporary = None if logs else TemporaryFolder("kubeshard-demo-")
    folder = temporary.path if temporary else new_folder("--logs", Path(logs or ""))
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            finished = runner.run(
                _until_interrupted(
                    play(
                        folder,
                        REAL_WORLD,
                        real=real,
                        in_manager=in_manager,
                        websites=websites,
                        lease_seconds=lease_seconds or (6 if real else 4),
                        patience=patience,
                        keep=keep,
                    )
                )
            )
    except Exception:
        if temporary:
            temporary.keep()
        click.echo(f"the logs are in {folder}", err=True)
        raise
    except BaseException:
        if temporary:
            temporary.remove()
        raise
    if temporary:
        temporary.remove()
    if not finished:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(130)


async def _until_interrupted(work: Coroutine[Any, Any, None]) -> bool:
    """Runs `work` and returns whether it completed. The first SIGINT or SIGTERM cancels it. The second has its usual
    effect, and the kernel then kills the children of the dead process (`kubeshard_apiserver.testing.child`).
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work, name="demo")

    def interrupt() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt)
    await asyncio.wait([task])
    if task.cancelled():
        return False
    await task
    return True


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
