"""What a ServiceMonitor is given to scrape with is what the installed sharder shows, in any namespace."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed_cluster import Cluster
from pods import Pods
from replicas import Replica

from kubeshard.core.yaml_output import documents
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues, chosen
from kubeshard_apiserver.testing.control_plane import free_port


@pytest.fixture(params=["sharding-system", "elsewhere"])
def installed(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[tuple[str, Any]]:
    """The namespace, and how to scrape."""
    webhook = {"server": {"bindAddress": f"127.0.0.1:{free_port()}"}}
    values = {
        "namespace": request.param,
        "config": {"webhook": webhook},
        "serviceMonitor": {"enabled": True},
    }
    objects = sharder_objects(chosen(SharderValues, values))
    (monitor,) = (each for each in objects if each["kind"] == "ServiceMonitor")
    objects.remove(monitor)
    cluster.apply("-f", "-", "--force-conflicts", given=documents(objects))
    cluster.kubectl("wait", "--for=condition=Established", "crd/controllerrings.sharding.timebertt.dev")
    yield request.param, monitor["spec"]["endpoints"][0]
    cluster.remove(objects)


def test_the_metrics_certificate_is_the_one_that_a_service_monitor_trusts(
    installed: tuple[str, Any], cluster: Cluster, tmp_path: Path
) -> None:
    namespace, endpoint = installed
    pods = Pods(cluster, tmp_path)
    replica = Replica(cluster, pods, tmp_path, namespace)
    try:
        replica.wait_ready()
        tls = endpoint["tlsConfig"]
        secret = cluster.get("-n", namespace, f"secret/{tls['ca']['secret']['name']}")
        authority = base64.b64decode(secret["data"][tls["ca"]["secret"]["key"]]).decode()
        context = ssl.create_default_context(cadata=authority)
        with (
            socket.create_connection(("127.0.0.1", replica.metrics), timeout=10) as connection,
            context.wrap_socket(connection, server_hostname=tls["serverName"]) as secure,
        ):
            secure.sendall(b"GET /metrics HTTP/1.1\r\nHost: sharder\r\nConnection: close\r\n\r\n")
            assert secure.recv(100).startswith(b"HTTP/1.1 401")
    finally:
        replica.pod.kill()
        pods.remove()
