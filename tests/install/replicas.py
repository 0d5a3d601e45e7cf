"""Pods of the installed sharder, as processes of this machine: with command, arguments, environment and probes of the
Deployment in the cluster, the configuration of its ConfigMap, and a token of its service account.

What is different from a pod: there is no container around it, and each process has ports of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from installed_cluster import Cluster

from kubeshard.testing import Child, wait_until
from kubeshard.testing.control_plane import free_port

NAMESPACE, NAME = "sharding-system", "sharder"
_numbers = itertools.count(1)


class Replica:
    """One process, started as the Deployment says at that moment."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.name = f"{NAME}-{next(_numbers)}"
        deployment = cluster.get("-n", NAMESPACE, f"deployment/{NAME}")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        self._probes = {
            kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")
        }
        self._health = free_port()
        config = folder / f"{self.name}.yaml"
        config.write_text(json.dumps(self._config(cluster)))
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounts["/config.yaml"] == "config"
        arguments = [word.replace("/config.yaml", str(config)) for word in container["args"]]
        assert container["command"] == ["kubeshard"]
        self.child = Child(
            self.name,
            [sys.executable, "-m", "kubeshard", *arguments],
            folder / f"{self.name}.log",
            {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.environ["PYTHONPATH"],
                "HOME": "/nonexistent",
                "TMPDIR": "/nonexistent",
                "KUBECONFIG": str(_kubeconfig(cluster, folder / f"{self.name}.kubeconfig")),
                **{each["name"]: each["value"] for each in container.get("env", ())},
            },
        )

    def _config(self, cluster: Cluster) -> dict[str, Any]:
        """The ConfigMap's, with ports of its own."""
        found = cluster.get("-n", NAMESPACE, "configmap/sharder-config")["data"]["config"]
        config: dict[str, Any] = yaml.safe_load(found)
        config["health"] = {"bindAddress": f"127.0.0.1:{self._health}"}
        config["metrics"] = {"bindAddress": f"127.0.0.1:{free_port()}"}
        return config

    def passes(self, probe: str) -> bool:
        """As the kubelet would see it."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._health}{self._probes[probe]}", timeout=2
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_ready(self, within: float = 60.0) -> None:
        def ready() -> bool:
            assert self.child.running, self.child.tail()
            return self.passes("readiness")

        wait_until(ready, within, f"{self.name} is ready: {self.child.tail(5)}")
        assert self.passes("liveness")

    def stop(self) -> None:
        """As the kubelet does it, within the pod's grace period."""
        assert self.child.stop(grace=30) == 0, self.child.tail()


class Rollout:
    """The Deployment's replicas: a new one is ready before an old one is told to stop."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self.replicas: list[Replica] = []

    def roll(self) -> None:
        wanted = self._cluster.get("-n", NAMESPACE, f"deployment/{NAME}")["spec"]["replicas"]
        old, self.replicas = self.replicas, []
        for _ in range(wanted):
            fresh = Replica(self._cluster, self._folder)
            self.replicas.append(fresh)
            fresh.wait_ready()
            if old:
                old.pop(0).stop()

    def kill(self) -> None:
        for replica in self.replicas:
            replica.child.kill()


def _kubeconfig(cluster: Cluster, file: Path) -> Path:
    """With a token of the service account, and nothing else."""
    token = cluster.kubectl("-n", NAMESPACE, "create", "token", NAME, "--duration=1h").strip()
    admin = yaml.safe_load(cluster.kubeconfig.read_text())
    current = next(each for each in admin["contexts"] if each["name"] == admin["current-context"])
    named = next(each for each in admin["clusters"] if each["name"] == current["context"]["cluster"])
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": _absolute(named["cluster"], cluster.kubeconfig.parent)}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(document))
    file.chmod(0o600)
    return file


def _absolute(cluster: dict[str, Any], folder: Path) -> dict[str, Any]:
    authority = cluster.get("certificate-authority")
    return {**cluster, "certificate-authority": str(folder / authority)} if authority else cluster
