"""A real kube-apiserver with etcd and the rest of a control plane, for a test session."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from kubeshard.testing.control_plane import ControlPlane
from kubeshard_apiserver.testing.kube_api import KubeApi


class RealApi(KubeApi):
    """Uses a running control plane, which the caller has to stop."""

    target = "real"

    def __init__(self, control_plane: ControlPlane) -> None:
        super().__init__()
        self.control_plane = control_plane
        self.kubeconfig = control_plane.kubeconfig

    def forget(self) -> None:
        answer = self.call(lambda client: client.raw("GET", "/api/v1/namespaces?limit=1"))
        compact(self.control_plane, int(json.loads(answer.body)["metadata"]["resourceVersion"]))


def compact(control_plane: ControlPlane, revision: int) -> None:
    """Compacts etcd at a revision, through etcd's gateway for clients without gRPC; its address is on etcd's command
    line.
    """
    etcd = control_plane.children[0].pid
    arguments = Path(f"/proc/{etcd}/cmdline").read_text().split("\0")
    flag = "--listen-client-urls="
    url = next(argument.removeprefix(flag) for argument in arguments if argument.startswith(flag))
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request(f"{url}/v3/kv/compaction", body, method="POST")  # noqa: S310 - etcd's
    urllib.request.urlopen(request).close()  # noqa: S310
