"""The command `top`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kubeshard.cli.kubectl.asking import (
    Access,
    access_options,
    ask,
    first_of,
    say,
    seconds,
    stop_in_order,
    watched_rings,
)
from kubeshard.cli.kubectl.browsing import KEYS, Browsing, asked
from kubeshard.cli.kubectl.questions import facts_of, placements, title_of
from kubeshard.commands.options import CLUSTER_VARIABLE, Command
from kubeshard.core.errors import ConfigurationError, KubeshardError
from kubeshard.version import how_to_install

if TYPE_CHECKING:
    from rich.console import Console

    from kubeshard.client.client import Client
    from kubeshard.inspection.live import RingWatcher

REFRESH = 0.25
HAPPENINGS = 6


@click.command(
    cls=Command,
    short_help="Watch rings live.",
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
    """Watch all rings, or one: each shard's objects as a bar, what moves, what is being drained, whether everything is
    in its place, and what happened since.

    It runs until Ctrl-C or q. The arrow keys show the other rings; / asks where an object is, as in "/secret/a team".
    It watches the metadata of every object of the rings and keeps one number for each, so you can leave it open on
    large ones. If the output is not a terminal, it writes a line whenever something has changed.
    """
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        raise ConfigurationError(f"top needs the package rich: {how_to_install('kubectl')}") from None
    console = Console()
    stop_in_order()
    ask(access, lambda client: _top(client, console, ring, once=once))


async def _top(client: Client, console: Console, name: str | None, *, once: bool) -> None:
    rings = await watched_rings(client, name)
    works = {f"ring {each}": ring.run() for each, ring in rings.items()}
    await first_of(showing=_show(client, rings, console, once=once), **works)


async def _show(client: Client, rings: Mapping[str, RingWatcher], console: Console, *, once: bool) -> None:
    for each in rings.values():
        await each.read()
    if once:
        _print(rings, console)
        if any(each.snapshot().unread for each in rings.values()):
            sys.exit(1)
    elif not console.is_terminal:
        await _lines(rings)
    else:
        await _live(client, rings, console)


def _print(rings: Mapping[str, RingWatcher], console: Console) -> None:
    from kubeshard.cli.kubectl import screen

    if console.is_terminal:
        for name, each in rings.items():
            console.print(screen.ring(each.snapshot(), note=f"ring {name}", history=False))
    else:
        say("\n".join(_told(rings)))


async def _lines(rings: Mapping[str, RingWatcher]) -> None:
    last: set[str] = set()
    while True:
        lines = _told(rings)
        for line in lines:
            if line not in last:
                say(line)
        sys.stdout.flush()
        last = set(lines)
        await asyncio.sleep(1.0)


def _told(rings: Mapping[str, RingWatcher]) -> list[str]:
    """A line for each ring, with its name if there are several."""
    from kubeshard.cli.kubectl import screen

    several = len(rings) > 1
    return [f"{f'{name}: ' if several else ''}{screen.line(each.snapshot())}" for name, each in rings.items()]


async def _live(client: Client, rings: Mapping[str, RingWatcher], console: Console) -> None:
    from rich.live import Live

    from kubeshard.cli.kubectl import screen

    browsing = Browsing([*rings])
    questions: set[asyncio.Task[None]] = set()

    def typed(text: str) -> None:
        for question in browsing.keys(text):
            task = asyncio.create_task(_find(client, browsing, question), name="a question")
            questions.add(task)
            task.add_done_callback(questions.discard)

    with Live(console=console, auto_refresh=False, screen=True) as live, keyboard(typed) as listens:
        while not browsing.ended:
            shown = rings[browsing.ring]
            snapshots = {name: each.snapshot() for name, each in rings.items()}
            past = [
                (f"{seconds(shown.wall() - each.at) or '0s'} ago", each.what)
                for each in shown.history.latest(HAPPENINGS)
            ]
            question = [] if browsing.typed is None else [f"/{browsing.typed}_"]
            below = [*question, *browsing.answer, *([KEYS] if listens else [])]
            live.update(screen.top(snapshots, browsing.ring, past, below), refresh=True)
            await asyncio.sleep(REFRESH)


async def _find(client: Client, browsing: Browsing, question: str) -> None:
    words, namespace = asked(question)
    browsing.answer = [f"looking for {question} ..."]
    try:
        found = await placements(words, namespace, family=True)(client)
    except KubeshardError as error:
        browsing.answer = [str(error)]
        return
    lines = [
        [title_of(each), *(f"{name}: {text}" for name, text in facts_of(each) if text)] for each in found
    ]
    browsing.answer = [line for each in lines for line in each]


@contextmanager
def keyboard(typed: Callable[[str], None]) -> Iterator[bool]:
    """Calls `typed` with each key, which is not shown, during the block. Yields whether there is a keyboard."""
    try:
        import termios
        import tty

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (ImportError, OSError, ValueError, termios.error):
        yield False
        return
    loop = asyncio.get_running_loop()
    tty.setcbreak(terminal)
    loop.add_reader(terminal, lambda: typed(os.read(terminal, 1024).decode(errors="ignore")))
    try:
        yield True
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
