"""The command `top`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from kubeshard.cli.kubectl.asking import Access, access_options, ask, first_of, only_ring, say, stop_in_order
from kubeshard.commands.options import CLUSTER_VARIABLE, Command
from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install

if TYPE_CHECKING:
    from rich.console import Console

    from kubeshard.client.client import Client
    from kubeshard.inspection.live import RingWatcher

REFRESH = 0.25
"""Seconds between two refreshes."""


@click.command(
    cls=Command,
    short_help="Watch a ring live.",
    environment=CLUSTER_VARIABLE,
    examples=(
        "kubectl shard top",
        "# the present state, as one line",
        "kubectl shard top webhosting-operator --once | cat",
    ),
)
@click.argument("ring", metavar="[RING]", required=False)
@click.option(
    "--once",
    is_flag=True,
    help="Print the state once everything has been read, and exit; the exit code is 1 if something cannot be read.",
)
@access_options
def top(ring: str | None, once: bool, access: Access) -> None:
    """Watch a ring: each shard's objects as a bar, what moves, what is being drained, and whether everything is in its
    place.

    It runs until Ctrl-C. It watches the metadata of every object of the ring and keeps one number for each, so you can
    leave it open on a large ring. If the output is not a terminal, it writes a line whenever something has changed.
    """
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        raise ConfigurationError(f"top needs the package rich: {how_to_install('kubectl')}") from None
    console = Console()
    stop_in_order()
    ask(access, lambda client: _look(client, console, ring, once=once))


async def _look(client: Client, console: Console, name: str | None, *, once: bool) -> None:
    from kubeshard.inspection.live import RingWatcher

    watcher = RingWatcher(client, await only_ring(client, name))
    await first_of(following=watcher.run(), showing=_show(watcher, console, once=once))


async def _show(watcher: RingWatcher, console: Console, *, once: bool) -> None:
    from rich.live import Live

    from kubeshard.cli.kubectl import screen

    await watcher.read()
    if once:
        _print(watcher, console)
        if watcher.picture().unread:
            sys.exit(1)
    elif not console.is_terminal:
        await _lines(watcher)
    else:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                live.update(
                    screen.ring(watcher.picture(), note=f"ring {watcher.name}, Ctrl-C ends"), refresh=True
                )
                await asyncio.sleep(REFRESH)


def _print(watcher: RingWatcher, console: Console) -> None:
    from kubeshard.cli.kubectl import screen

    if console.is_terminal:
        console.print(screen.ring(watcher.picture(), note=f"ring {watcher.name}", history=False))
    else:
        say(screen.line(watcher.picture()))


async def _lines(watcher: RingWatcher) -> None:
    from kubeshard.cli.kubectl import screen

    last = ""
    while True:
        line = screen.line(watcher.picture())
        if line != last:
            say(line)
            sys.stdout.flush()
        last = line
        await asyncio.sleep(1.0)
