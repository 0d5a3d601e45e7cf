"""kubectl runs the plugin, and gets completions from it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard_apiserver.testing import ControlPlane, KubeApi

pytestmark = pytest.mark.system

RING = {
    "apiVersion": "sharding.timebertt.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "plugin"},
    "spec": {"resources": [{"group": "", "resource": "secrets"}]},
}


@pytest.fixture
def kubectl(kube_control_plane: ControlPlane, tmp_path: Path) -> Callable[..., str]:
    """Runs kubectl with the plugin's programs on the path, where pip installs them."""
    for name, entry in (("kubectl-shard", "shard_main"), ("kubectl_complete-shard", "shard_completions")):
        program = tmp_path / name
        program.write_text(f"#!{sys.executable}\nfrom kubeshard.cli import {entry}\n{entry}()\n")
        program.chmod(0o755)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [kube_control_plane.kubectl_path, *arguments],
            env={
                **os.environ,
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "KUBECONFIG": str(kube_control_plane.kubeconfig),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_kubectl_runs_the_plugin(kube_api: KubeApi, kubectl: Callable[..., str]) -> None:
    kube_api.install(controller_ring_crd(), RING)
    try:
        assert (
            kubectl("shard", "status", "plugin", "-o", "name")
            == "controllerring.sharding.timebertt.dev/plugin\n"
        )
    finally:
        kube_api.call(lambda client: client.delete(ControllerRing, "plugin"))


def test_kubectl_completes_the_plugins_commands(kubectl: Callable[..., str]) -> None:
    completed = kubectl("__complete", "shard", "st").splitlines()
    assert [line.split("\t")[0] for line in completed] == ["status", ":4"]
