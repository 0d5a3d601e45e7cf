"""Runs the demo: starts everything, shows it, and stops it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from kubeshard.client.client import Client
from kubeshard.client.kubeconfig import load_config
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.world import World
from kubeshard.sharding.names import shard_label
from kubeshard_apiserver.controllers.controllers import Controllers
from kubeshard_apiserver.serving.embedded import EmbeddedServer
from kubeshard_apiserver.testing.control_plane import ControlPlane
from kubeshard_lab.demo.cluster import install, sharded_kinds
from kubeshard_lab.demo.observer import IN_MANAGER_ELECTION, SHARDER_ELECTION, Observer
from kubeshard_lab.demo.processes import RingProcesses
from kubeshard_lab.demo.scenario import InManager, NotSettled, Scenario, Step
from kubeshard_lab.demo.screen import Screen, summary
from kubeshard_lab.examples.webhosting.api import RING

_POLL = 0.1


class Server(NamedTuple):
    kubeconfig: Path
    kubectl: str


async def play(
    folder: Path,
    world: World,
    *,
    real: bool,
    in_manager: bool,
    websites: int,
    lease_seconds: int,
    patience: int,
    keep: bool,
) -> None:
    """Runs the whole demo on a `real` control plane or the embedded API server, with data and logs in `folder`.
    Cancelling it stops everything that it started. Raises KubeshardError if a step fails.
    """
    console = Console(highlight=False)
    serving = (
        _control_plane(console, folder / "control-plane", patience, world.clock)
        if real
        else _embedded(console, folder, world.clock)
    )
    async with serving as kube:
        processes = RingProcesses(kube.kubeconfig, folder, lease_seconds)
        try:
            async with Client(await load_config(kubeconfig=kube.kubeconfig), world=world) as client:
                await install(client, in_manager=in_manager)
                election = IN_MANAGER_ELECTION if in_manager else SHARDER_ELECTION
                observer = Observer(client, RING, election, *await sharded_kinds(client))
                scene = InManager if in_manager else Scenario
                scenario = scene(client, processes, observer, count=websites, patience=patience)
                screen = Screen(console, observer, scenario.titles, world.clock)
                steps: list[Step] = []
                async with observer.running(), screen.showing():
                    async for step in scenario.steps():
                        steps.append(step)
                        screen.done(step)
            console.print(summary(steps))
            if keep:
                await _keep(console, kube, processes)
        finally:
            processes.stop_all()


@asynccontextmanager
async def _embedded(console: Console, folder: Path, clock: Clock) -> AsyncIterator[Server]:
    """The embedded API server, in this process and event loop."""
    began = clock.monotonic()
    async with (
        EmbeddedServer() as served,
        Controllers(served.server, caller=served.caller, rights=served.front.gate.rights),
    ):
        kubeconfig = folder / "kubeconfig"
        served.write_kubeconfig(kubeconfig)
        seconds = clock.monotonic() - began
        console.print(
            f"kubeshard's own API server runs in this process: {seconds:.1f} s (--real: etcd and kube-apiserver)",
            soft_wrap=True,
        )
        yield Server(kubeconfig, "kubectl")


@asynccontextmanager
async def _control_plane(
    console: Console, folder: Path, patience: float, clock: Clock
) -> AsyncIterator[Server]:
    """A real control plane, started without blocking the event loop so that it can be cancelled."""
    kube = ControlPlane(folder=folder)
    began = clock.monotonic()
    try:
        with console.status("starting etcd and kube-apiserver on this machine ..."):
            kube.spawn()
            async with asyncio.timeout(patience):
                while not kube.ready():  # noqa: ASYNC110 - another process, there is nothing to wait on
                    await asyncio.sleep(_POLL)
        seconds = clock.monotonic() - began
        console.print(f"etcd and kube-apiserver run on this machine: {seconds:.1f} s", soft_wrap=True)
        yield Server(kube.kubeconfig, str(kube.kubectl_path))
    except TimeoutError:
        raise NotSettled(f"kube-apiserver is not ready after {patience:.0f} s") from None
    finally:
        kube.stop()


async def _keep(console: Console, kube: Server, processes: RingProcesses) -> None:
    for text in (
        "everything keeps running until Ctrl-C; in another terminal:",
        f"  export KUBECONFIG={kube.kubeconfig}",
        f"  {kube.kubectl} get websites --all-namespaces --label-columns {shard_label(RING)}",
        f"  {kube.kubectl} get leases --all-namespaces --show-labels",
        "  python -m kubeshard_lab.examples.webhosting samples generate --count 20 --skip-workload",
    ):
        console.print(text, soft_wrap=True)
    try:
        while True:
            await asyncio.sleep(1)
            processes.check()
    except asyncio.CancelledError:
        console.print("stopping")
