"""A real kube-apiserver with etcd, and what else makes a cluster, for a test session."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from kubeshard.testing.control_plane import ControlPlane
from kubeshard.testing.kube_api import KubeApi


class RealApi(KubeApi):
    """Starts the control plane when it is made. `controllers`: garbage collection, namespaces and workloads;
    `pods`: pods become ready. Raises ConfigurationError when its programs are missing, ControlPlaneFailed.
    """

    target = "real"

    def __init__(self, *, controllers: bool = True, pods: bool = True) -> None:
        super().__init__()
        try:
            self.control_plane = ControlPlane(controller_manager=controllers, pods=pods).__enter__()
        except BaseException:
            super().stop()
            raise
        self.kubeconfig = self.control_plane.kubeconfig

    def forget(self) -> None:
        version = self.call(lambda client: client.raw("GET", "/api/v1/namespaces?limit=1"))
        revision = int(json.loads(version.body)["metadata"]["resourceVersion"])
        compact(self.control_plane.children[0].pid, revision)

    def stop(self) -> None:
        super().stop()
        self.control_plane.stop()


def compact(etcd: int, revision: int) -> None:
    """Through the gateway that etcd has for clients without gRPC; its address is on its command line."""
    arguments = Path(f"/proc/{etcd}/cmdline").read_text().split("\0")
    flag = "--listen-client-urls="
    url = next(argument.removeprefix(flag) for argument in arguments if argument.startswith(flag))
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request(f"{url}/v3/kv/compaction", body, method="POST")  # noqa: S310 - etcd's
    urllib.request.urlopen(request).close()  # noqa: S310
