"""Sharders and shards in OS processes of their own, as a cluster would run them, for the demo and for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubeshard.core.errors import KubeshardError
from kubeshard.manager.config_file import election_document
from kubeshard.sharder import config as sharder_config
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_lab.examples.webhosting import config as operator_config
from kubeshard_lab.experiment.setups import config_file, shared_webhook


class ProcessEnded(KubeshardError):
    """A process ended although nobody stopped it. The message contains its last output."""


class RingProcesses:
    """Processes by name; configuration and logs are in `folder`. `lease_seconds`: of shards and leader."""

    def __init__(self, kubeconfig: Path, folder: Path, lease_seconds: float) -> None:
        self._folder = folder
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
        self._children: dict[str, Child] = {}
        self.webhook_port = free_port()
        self.lease_seconds = lease_seconds

    def start_sharder(self, name: str, webhook: Mapping[str, Any] | None = None) -> Child:
        """All share one webhook port, like replicas behind a Service. `webhook`: this part of the configuration."""
        server, client = shared_webhook(f"127.0.0.1:{self.webhook_port}")
        fields = {
            **self._common(instance=name),
            "webhook": webhook or {"server": server, "config": {"clientConfig": client}},
        }
        config = config_file(self._folder, name, sharder_config, fields)
        return self.start(name, "-m", "kubeshard", "sharder", "--config", config)

    def start_shard(self, name: str, *arguments: str, mode: str = "shard") -> Child:
        config = config_file(self._folder, name, operator_config, self._common())
        command = ["-m", "kubeshard_lab.examples.webhosting", "operator", "--config", config]
        return self.start(name, *command, "--shard-name", name, "--sharding", mode, *arguments)

    def start(self, name: str, *arguments: str, **environment: str) -> Child:
        child = Child(
            name,
            [sys.executable, *arguments],
            self._folder / f"{name}.log",
            {**self._environment, **environment},
        )
        self._children[name] = child
        return child

    def __getitem__(self, name: str) -> Child:
        return self._children[name]

    def check(self) -> None:
        """Raises ProcessEnded if a process ended although nobody stopped it."""
        for child in self._children.values():
            if not child.running:
                raise ProcessEnded(
                    f"{child.name} ended with exit code {child.exit_code}; its last output:\n{child.tail()}"
                )

    def kill(self, name: str) -> None:
        self._children.pop(name).kill()

    def stop(self, name: str) -> int:
        return self._children.pop(name).stop(grace=30)

    def request_stop(self, name: str, number: int) -> Child:
        child = self._children.pop(name)
        child.signal(number)
        return child

    def stop_all(self) -> None:
        for child in self._children.values():
            child.kill()
        self._children.clear()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._children)

    def _common(self, *, instance: str = "") -> dict[str, Any]:
        return {
            "health": {"bindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {**election_document(self.lease_seconds), "instance": instance},
        }
