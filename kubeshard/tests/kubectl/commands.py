"""`kubectl shard` as a user would call it, in this process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubeshard.cli.kubectl import program
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
