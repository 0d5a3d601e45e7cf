"""The processes of the interop tests: sharders and shards, each kubeshard's or the Go reference's.

The reference's operator takes its shard's name from the host name and the Lease's namespace from a pod's
ServiceAccount, so it runs in its own UTS and mount namespaces, which fake both. Its sharder listens on a fixed port, on
all interfaces.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from service import Service

from kubeshard.manager.config_file import election_document
from kubeshard.webhook.certificates import Identity
from kubeshard.webhook.selfsigned import renewed
from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child, as_pod
from kubeshard_apiserver.testing.control_plane import free_port

GO_WEBHOOK_PORT = 9443
LEASE_SECONDS = 5
_KUBESHARD = (sys.executable, "-m", "kubeshard")
_WEBHOSTING = (sys.executable, "-m", "kubeshard_lab.examples.webhosting")
_CHECKSUM = (sys.executable, "-m", "kubeshard_lab.examples.checksum")


class Programs:
    """Starts programs, and stops all that are left. With a `go` path it starts the reference's."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._children: list[Child] = []
        self._identity: Identity | None = None
        self._go_port: IO[str] | None = None
        """Locked while the port of the Go sharder is this test's."""

    def sharder(self, go: Path | None = None, *, replica_of: Service | None = None) -> Child:
        """Starts a sharder. `replica_of`: it is one of several, which share a Lease and are behind a Service."""
        port = GO_WEBHOOK_PORT if go else free_port()
        if go:
            self._take_the_go_port()
        certificates = self._folder / "certificates"
        if self._identity is None:
            self._identity = renewed(None, ["127.0.0.1"], time.time())
            certificates.mkdir()
            (certificates / "tls.crt").write_bytes(self._identity.serving.certificate)
            (certificates / "tls.key").write_bytes(self._identity.serving.private_key)
        called_at, election = port, {}
        if replica_of is not None:
            replica_of.backends.append(port)
            called_at = replica_of.port
            election = {
                "leaderElection": {
                    "resourceNamespace": replica_of.namespace,
                    "resourceName": replica_of.election,
                    **election_document(LEASE_SECONDS),
                }
            }
        config = self._config(
            "config.sharding.timebertt.dev/v1alpha1",
            "SharderConfig",
            controller={"sharder": {"syncPeriod": "5s"}},
            webhook={
                "server": {"certDir": str(certificates), "bindAddress": f"127.0.0.1:{port}"},
                "config": {
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{called_at}/",
                        "caBundle": base64.b64encode(self._identity.bundle).decode(),
                    }
                },
            },
            **election,
        )
        program = [str(go)] if go else [*_KUBESHARD, "sharder"]
        elect = str(replica_of is not None).lower()
        return self._start("sharder", [*program, "--config", config], LEADER_ELECT=elect)

    def operator(self, name: str, namespace: str, go: Path | None = None) -> Child:
        """Starts the webhosting operator as a shard whose Lease lasts LEASE_SECONDS."""
        config = self._config(
            "config.webhosting.timebertt.dev/v1alpha1",
            "WebhostingOperatorConfig",
            leaderElection=election_document(LEASE_SECONDS),
        )
        if go:
            if shutil.which("unshare") is None:
                pytest.skip(
                    "did not run: the Go operator's shard name is its host's, which takes unshare(1) to set"
                )
            command = [*as_pod(name, namespace), str(go), "--config", config]
        else:
            command = [*_WEBHOSTING, "operator", "--config", config]
            command += ["--shard-name", name, "--namespace", namespace]
        return self._start(name, command, ENABLE_SHARDING="true")

    def checksums(self, name: str, ring: str, namespace: str, go: Path | None = None) -> Child:
        """Starts the checksum controller as a shard whose Lease is in the namespace of its Secrets."""
        command = [str(go)] if go else [*_CHECKSUM]
        command += ["--controllerring", ring, "--shard-name", name]
        command += ["--namespace", namespace, "--lease-namespace", namespace]
        return self._start(name, command)

    def script(self, name: str, path: Path, *arguments: str) -> Child:
        return self._start(name, [sys.executable, str(path), *arguments])

    def check(self) -> None:
        """Fails the test if a program has ended with an error."""
        for child in self._children:
            if not child.running and child.exit_code not in (0, -9):
                pytest.fail(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")

    def stop(self) -> None:
        for child in self._children:
            child.kill()
        if self._go_port is not None:
            self._go_port.close()

    def _take_the_go_port(self) -> None:
        """Tests in other processes want it, too: it is theirs when all programs of this one are stopped."""
        if self._go_port is None:
            self._go_port = (Path(tempfile.gettempdir()) / f"kubeshard-tests-port-{GO_WEBHOOK_PORT}").open(
                "w"
            )
            wait_until(self._has_the_go_port, 600, f"the turn of this test to have port {GO_WEBHOOK_PORT}")
        wait_until(_go_port_is_free, 60, f"port {GO_WEBHOOK_PORT}, which the Go sharder needs: free")

    def _has_the_go_port(self) -> bool:
        assert self._go_port is not None
        try:
            fcntl.flock(self._go_port, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _config(self, api_version: str, kind: str, **fields: Any) -> str:
        document = {
            "apiVersion": api_version,
            "kind": kind,
            "health": {"bindAddress": "0"},
            "metrics": {"bindAddress": f"127.0.0.1:{free_port()}"},  # to the reference, "0" means port 8080
            **fields,
        }
        file = self._folder / f"{kind}-{len(self._children)}.json"
        file.write_text(json.dumps(document))
        return str(file)

    def _start(self, name: str, command: Sequence[str], **environment: str) -> Child:
        environment = {"KUBECONFIG": str(self._kubeconfig), "DISABLE_HTTP2": "true", **environment}
        log = self._folder / f"{name}-{len(self._children)}.log"
        child = Child(name, command, log, {**os.environ, **environment})
        self._children.append(child)
        return child


def _go_port_is_free() -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", GO_WEBHOOK_PORT))
        except OSError:
            return False
        return True
