"""Runs the demo: starts everything, shows it, stops it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live

from kubeshard.cli.demo.cluster import install, sharded_kinds
from kubeshard.cli.demo.fleet import Fleet
from kubeshard.cli.demo.observer import Observer
from kubeshard.cli.demo.scenario import Scenario, Step
from kubeshard.cli.demo.table import line, live_view, summary
from kubeshard.client import Client, load_config
from kubeshard.examples.webhosting.api import RING
from kubeshard.testing import ControlPlane

_REFRESH = 0.25


async def play(folder: Path, *, websites: int, lease_seconds: int, patience: int, keep: bool) -> None:
    """The whole demo. Raises KubeshardError when something did not work."""
    console = Console()
    console.print("starting etcd and kube-apiserver on this machine ...")
    # A children's parent must be the main thread (see testing.child), so the few seconds until it serves are waited for here.
    with ControlPlane(folder=folder / "control-plane") as kube:
        fleet = Fleet(kube.kubeconfig, folder, lease_seconds)
        try:
            async with Client(await load_config(kubeconfig=kube.kubeconfig)) as client:
                await install(client)
                mains, controlled = await sharded_kinds(client)
                observer = Observer(client, RING, mains, controlled)
                async with observer.running(), _screen(console, observer) as screen:
                    scenario = Scenario(
                        client, fleet, observer, websites=websites, patience=patience, tell=screen.tell
                    )
                    steps: list[Step] = []
                    async for step in scenario.steps():
                        steps.append(step)
                        screen.done(step)
                console.print(summary(steps))
                if keep:
                    await _keep(console, kube, fleet)
        finally:
            fleet.stop_all()


class Screen:
    """What the demo says: a live table on a terminal, lines elsewhere."""

    def __init__(self, console: Console, observer: Observer, live: Live | None) -> None:
        self._console = console
        self._observer = observer
        self._live = live
        self._now = ""

    def tell(self, now: str) -> None:
        self._now = f"now: {now} ..."
        if self._live is None:
            self._console.print(self._now)

    def done(self, step: Step) -> None:
        self._console.print(f"[green]✓[/green] {step.title}: {step.seconds:.1f} s")
        if self._live is None:
            self._console.print(f"  {line(self._observer.picture())}", soft_wrap=True)

    async def refresh(self) -> None:
        assert self._live is not None
        while True:
            self._live.update(
                live_view(self._observer.picture(), self._observer.moves, self._observer.drains, self._now),
                refresh=True,
            )
            await asyncio.sleep(_REFRESH)


@asynccontextmanager
async def _screen(console: Console, observer: Observer) -> AsyncIterator[Screen]:
    if not console.is_terminal:
        yield Screen(console, observer, None)
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:
        screen = Screen(console, observer, live)
        refreshing = asyncio.create_task(screen.refresh())
        try:
            yield screen
        finally:
            refreshing.cancel()


async def _keep(console: Console, kube: ControlPlane, fleet: Fleet) -> None:
    console.print("\neverything keeps running until Ctrl-C; in another terminal:")
    console.print(f"  export KUBECONFIG={kube.kubeconfig}", soft_wrap=True)
    console.print(
        f"  {kube.kubectl_path} get websites -A -L shard.alpha.sharding.timebertt.dev/{RING}", soft_wrap=True
    )
    while True:
        await asyncio.sleep(1)
        fleet.check()
