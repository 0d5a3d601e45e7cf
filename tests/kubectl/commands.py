"""`kubectl shard` as a user would call it, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubeshard.cli.kubectl import program


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
