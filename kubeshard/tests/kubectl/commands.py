"""`kubectl shard` as a user would call it, in this process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubeshard.cli.kubectl import program
from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupResource
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.inspection.cluster import ELECTION
from kubeshard.sharding.api import ControllerRing
from kubeshard_apiserver.testing.assets import find_assets


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class KubectlShard:
    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._captured = captured

    def at(self, kubeconfig: Path) -> KubectlShard:
        """Selects the cluster."""
        self._patch.setenv("KUBECONFIG", str(kubeconfig))
        return self

    def __call__(self, *arguments: str, entry: Callable[[], None] = program.main) -> Done:
        self._patch.setattr(sys, "argv", ["kubectl-shard", *arguments])
        code: Any = 0
        try:
            entry()
        except SystemExit as end:
            code = end.code
        return Done(code, *self._captured.readouterr())


async def typed(command: str, kubeconfig: Path, answer: str = "") -> None:
    """Runs the command as a user who types it, with kubectl; the editor changes nothing."""
    paths = (Path(sys.executable).parent, find_assets(["kubectl"]), os.environ["PATH"])
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PATH": os.pathsep.join(map(str, paths)),
        "EDITOR": "true",
    }
    done = await asyncio.create_subprocess_shell(
        command,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await done.communicate(answer.encode())
    found = 2 if command == "kubectl shard doctor" else 0  # it has found something
    assert done.returncode in (0, found), f"{command}: {said.decode()}"


def reader_grants(resources: Iterable[GroupResource]) -> Iterator[Grant]:
    """The rights of read-only users of rings with these main and controlled resources."""
    yield Grant.on(ControllerRing, "list", "watch")
    yield Grant.on(Lease, "list", "watch")
    yield Grant.on(Lease, "get", namespace=ELECTION.namespace, name=ELECTION.name)
    yield Grant.on(Namespace, "list", "watch")
    yield Grant.on(MutatingWebhookConfiguration, "get", "list")
    for resource in resources:
        yield Grant.on(resource, "list", "watch")
