"""A cluster from the point of view of its installer: through kubectl and Helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from kubeshard.core.yaml_output import documents

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


class Cluster(NamedTuple):
    """A cluster accessed through kubectl and Helm."""

    kubeconfig: Path
    programs: Path

    def kubectl(self, *arguments: str | Path, given: str | None = None) -> str:
        command = [self.programs / "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"kubectl {' '.join(map(str, arguments))}: {done.stderr}"
        return done.stdout

    def apply(self, *arguments: str | Path, given: str | None = None) -> str:
        """Applies manifests as the documentation says."""
        return self.kubectl("apply", "--server-side", "--validate=strict", *arguments, given=given)

    def remove(self, objects: Iterable[Any]) -> None:
        """Those that are there."""
        self.kubectl("delete", "--ignore-not-found", "-f", "-", given=documents(objects))

    def helm(self, *arguments: str | Path) -> str:
        """Returns the output of `helm template`."""
        command = [self.programs / "helm", "template", "sharder", DEPLOY / "helm", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))
