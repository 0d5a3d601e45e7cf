"""Replicas of the installed sharder: with command, arguments, environment and probes of the Deployment in the cluster,
the configuration of its ConfigMap, and a token of its service account.

What is different from pods: they share this machine's network, so each has ports of its own.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from installed_cluster import Cluster
from pods import Pods

from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.control_plane import free_port

NAMESPACE, NAME = "sharding-system", "sharder"
CONFIG = "/config.yaml"


class Replica:
    """One, started as the Deployment says at that moment."""

    def __init__(self, cluster: Cluster, pods: Pods, folder: Path, namespace: str = NAMESPACE) -> None:
        deployment = cluster.get("-n", namespace, f"deployment/{NAME}")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        self._probes = {
            kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")
        }
        self._health, self.metrics = free_port(), free_port()
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {CONFIG: "config"}
        config = folder / f"{self._health}.yaml"
        config.write_text(json.dumps(self._config(cluster, namespace)))
        self.pod = pods.start((namespace, NAME), container, {CONFIG: config})

    def _config(self, cluster: Cluster, namespace: str) -> dict[str, Any]:
        """Returns the configuration in the ConfigMap, with ports for this process."""
        found = cluster.get("-n", namespace, "configmap/sharder-config")["data"]["config"]
        config: dict[str, Any] = yaml.safe_load(found)
        config["health"] = {"bindAddress": f"127.0.0.1:{self._health}"}
        config["metrics"] = {"bindAddress": f"127.0.0.1:{self.metrics}"}
        return config

    def passes(self, probe: str) -> bool:
        """Whether the probe succeeds for the kubelet."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._health}{self._probes[probe]}", timeout=2
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_ready(self, within: float = 60.0) -> None:
        def ready() -> bool:
            assert self.pod.running, self.pod.tail()
            return self.passes("readiness")

        wait_until(ready, within, f"the sharder is ready: {self.pod.tail(5)}")
        assert self.passes("liveness")

    def stop(self) -> None:
        """Stops the process as the kubelet would, within the pod's grace period."""
        assert self.pod.stop(grace=30) == 0, self.pod.tail()


class Rollout:
    """The Deployment's replicas: a new one is ready before an old one is stopped."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder, self._pods = cluster, folder, Pods(cluster, folder)
        self.replicas: list[Replica] = []

    def roll(self) -> None:
        wanted = self._cluster.get("-n", NAMESPACE, f"deployment/{NAME}")["spec"]["replicas"]
        old, self.replicas = self.replicas, []
        for _ in range(wanted):
            fresh = Replica(self._cluster, self._pods, self._folder)
            self.replicas.append(fresh)
            fresh.wait_ready()
            if old:
                old.pop(0).stop()

    def kill(self) -> None:
        for replica in self.replicas:
            replica.pod.kill()
        self._pods.remove()
