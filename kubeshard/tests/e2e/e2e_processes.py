"""The processes of a test."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.demo.processes import RingProcesses

_GATED = str(Path(__file__).with_name("gated_operator.py"))


class Processes(RingProcesses):
    """Processes that can also run shards of other operators; their logs are in `folder`."""

    def __init__(self, kubeconfig: Path, folder: Path, lease_seconds: float) -> None:
        super().__init__(kubeconfig, folder, lease_seconds)
        self.folder = folder

    def start_gated(
        self,
        *shards: str,
        ring: str,
        namespace: str,
        grace: float = 15.0,
        kinds: Iterable[str] = ("chores", "realms"),
        mode: str = "shard",
    ) -> None:
        """Starts shards of `gated_operator`."""
        for shard in shards:
            options = {"ring": ring, "shard": shard, "namespace": namespace, "grace": f"{grace:g}"}
            options["mode"] = mode
            options["lease-seconds"] = f"{self.lease_seconds:g}"
            arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
            self.start(shard, _GATED, *arguments, "--kinds", *kinds)

    def start_checksum(self, *shards: str, ring: str, namespace: str) -> None:
        """Starts shards of the checksum controller, for Secrets in `default`."""
        for shard in shards:
            command = ["-m", "kubeshard_lab.examples.checksum", "--controllerring", ring]
            self.start(shard, *command, "--shard-name", shard, "--lease-namespace", namespace)

    def start_websites(self, *shards: str, namespace: str) -> None:
        for shard in shards:
            self.start_shard(shard, "--namespace", namespace)

    def stop(self, name: str) -> int:
        """Sends SIGTERM and waits for the end; returns the exit code."""
        return ended(self.request_stop(name, signal.SIGTERM))

    def signal(self, name: str, number: int) -> Child:
        child = self[name]
        child.signal(number)
        return child

    def dismiss_replaced(self) -> None:
        """Forgets processes that ended because they had lost their Lease, as they have to: others have taken over."""
        for name in self.names:
            if not self[name].running and "Lost the Lease" in self[name].tail():
                self.kill(name)

    def stop_in_order(self, grace: float = 5.0) -> None:
        """Asks all processes to stop, and kills those that are still running after `grace` seconds."""
        for name in self.names:
            self.signal(name, signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not any(self[name].running for name in self.names), grace)
        self.stop_all()


def ended(child: Child, within: float = 30.0) -> int:
    """Waits until the process has ended; returns its exit code."""
    wait_until(lambda: not child.running, within, f"the end of {child.name}")
    assert child.exit_code is not None
    return child.exit_code


def tail_since(log: Path, position: int, limit: int = 12_000) -> str:
    """Returns what was logged after a position, or only the end of it if it is long."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(position, size - limit))
        return file.read().decode(errors="replace")
