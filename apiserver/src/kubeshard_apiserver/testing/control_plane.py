"""A real Kubernetes control plane on this machine, for tests and demos: etcd, kube-apiserver, and more on request.

    with ControlPlane() as kube:
        config = await load_config(kubeconfig=kube.kubeconfig)

Guaranteed: it listens on the loopback interface only, on free ports, and keeps its data in its own folder; `start`
returns when the API server reports that it is ready; nothing is left running when the block is left or the process
dies; after a failure, the logs remain and the error names their folder. Not guaranteed: durability (etcd does not sync
to disk).

Every program runs with the rights of a cluster administrator.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from http.client import HTTPException, HTTPSConnection
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Self

from kubeshard.core.errors import KubeshardError
from kubeshard.runtime.tls import CertificatePair
from kubeshard_apiserver.testing.assets import CORE_PROGRAMS, find_assets
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.folders import TemporaryFolder

_READY_WITHIN = 120.0
"""The timeout of the start. It takes four seconds, but many times longer on a busy machine."""
_POLL = 0.05
_DAY = 86400.0
_given_ports: set[int] = set()
_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "garbage-collector-controller",
    "namespace-controller",
)


class ControlPlaneFailed(KubeshardError):
    """A program ended or did not become ready. The message contains the end of its log and says where the rest is."""


class ControlPlane:
    """`controller_manager` adds kube-controller-manager, so that garbage collection, namespaces, Deployments and
    ReplicaSets work. `pods` also adds kube-scheduler and kwok with one simulated node, so that pods become ready.
    `controllers` names more of kube-controller-manager's controllers. `feature_gates` and `arguments` are feature gates
    and further flags of kube-apiserver. `folder` is used for data and logs instead of a temporary folder, and is kept.
    """

    def __init__(
        self,
        *,
        controller_manager: bool = False,
        pods: bool = False,
        controllers: Sequence[str] = (),
        feature_gates: Sequence[str] = (),
        arguments: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        programs = list(CORE_PROGRAMS)
        if controller_manager or pods or controllers:
            programs.append("kube-controller-manager")
        if pods:
            programs += ["kube-scheduler", "kwok"]
        self._assets = find_assets(programs)
        self._controllers = (*_CONTROLLERS, *controllers) if controller_manager or pods or controllers else ()
        self._pods = pods
        self._feature_gates = feature_gates
        self._arguments = arguments
        self._given_folder = folder
        self._temporary: TemporaryFolder | None = None
        self._children: list[Child] = []
        self._token = secrets.token_urlsafe(24)
        self.keep_logs = False
        """Whether to keep the temporary folder, without the data, after everything has stopped."""

    def start(self) -> Self:
        """Start the programs and wait until the API server is ready. Raises ControlPlaneFailed."""
        self.spawn()
        self.wait_ready()
        return self

    def spawn(self) -> None:
        """Start the programs without waiting for them; `wait_ready` and `ready` report when they serve."""
        if self._given_folder is not None:
            self._given_folder.mkdir(parents=True, exist_ok=True)
        if self._given_folder is None:
            self._temporary = TemporaryFolder("kubeshard-kube-")
        self.folder = self._temporary.path if self._temporary else Path(self._given_folder or "")
        self._port = free_port()
        self._start_etcd_and_api_server()
        self._write_kubeconfig()

    def ready(self) -> bool:
        """Whether the API server serves. Raises ControlPlaneFailed if a program has ended."""
        for child in self._children:
            if not child.running:
                raise self._failed(f"{child.name} ended with exit code {child.exit_code}", child)
        return self.serves(self._port)

    def wait_ready(self, within: float = _READY_WITHIN) -> None:
        deadline = time.monotonic() + within
        while not self.ready():
            if time.monotonic() > deadline:
                raise self._failed(f"kube-apiserver was not ready within {within:.0f} s", self._children[-1])
            time.sleep(_POLL)
        self._start_controllers()

    def stop(self) -> None:
        for child in reversed(self._children):
            # etcd and the API server have no state that a clean stop would save.
            child.kill()
        self._children.clear()
        temporary, self._temporary = self._temporary, None
        if temporary is not None and self.keep_logs:
            shutil.rmtree(self.folder / "etcd", ignore_errors=True)
            temporary.keep()
        elif temporary is not None:
            temporary.remove()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.keep_logs = True
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        """The path of a cluster administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port of the first API server."""
        return self._port

    @property
    def certificate_authority(self) -> Path:
        """What a client has to trust: the serving certificate, self-signed by kube-apiserver."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def children(self) -> tuple[Child, ...]:
        """The programs in the order in which they were started, for tests that stop one."""
        return tuple(self._children)

    def client_certificate(self, user: str, groups: Sequence[str] = ()) -> CertificatePair:
        """A client certificate that authenticates as this user for one day."""
        from kubeshard.runtime.certificate_authority import new_client_leaf

        return new_client_leaf(self._authority, user, groups, time.time(), _DAY)

    @property
    def kubectl_path(self) -> Path:
        return self._assets / "kubectl"

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        """Run kubectl and return what it prints. Unless `check` is False, a failure raises ControlPlaneFailed with
        kubectl's error message.
        """
        done = subprocess.run(  # noqa: S603 - kubectl
            [
                str(self.kubectl_path),
                f"--kubeconfig={self.kubeconfig}",
                f"--cache-dir={self.folder / 'kubectl'}",
                *arguments,
            ],
            input=input,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise ControlPlaneFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def start_api_server(
        self, name: str, port: int, *, etcd: str = "", arguments: Sequence[str] | None = None
    ) -> Child:
        """Start another API server, on this port and with the same data, tokens and certificate, or start one again
        that has ended. The first one has to be ready. `etcd`: the URL by which it reaches etcd. `arguments`: its
        further flags, by default those of the first one.
        """
        self._children = [child for child in self._children if child.name != name or child.running]
        arguments = self._arguments if arguments is None else arguments
        return self._run(
            "kube-apiserver", *self._api_server_flags(port, etcd or self.etcd_url, arguments), name=name
        )

    def serves(self, port: int) -> bool:
        """Whether an API server on this port is ready."""
        return self._answers("/readyz", port)

    def _start_etcd_and_api_server(self) -> None:
        client, peer = free_port(), free_port()
        self.etcd_url = f"http://127.0.0.1:{client}"
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        key = self.folder / "service-account.key"
        _write_rsa_key(key)
        self._authority, clients = _new_authority(), self.folder / "client-ca.crt"
        clients.write_bytes(self._authority.certificate)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self._token},admin,admin,"system:masters"\n')
        self._run("kube-apiserver", *self._api_server_flags(self._port, self.etcd_url, self._arguments))

    def _api_server_flags(self, port: int, etcd: str, arguments: Sequence[str]) -> Sequence[str]:
        key = self.folder / "service-account.key"
        return (
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'certificates'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--client-ca-file={self.folder / 'client-ca.crt'}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--advertise-address=10.9.9.9",
            "--endpoint-reconciler-type=none",
            # The second one would taint the node until a node controller, which does not run, removes the taint.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            *([f"--feature-gates={','.join(self._feature_gates)}"] if self._feature_gates else []),
            *arguments,
        )

    def _start_controllers(self) -> None:
        if self._controllers:
            self._run(
                "kube-controller-manager",
                f"--kubeconfig={self.kubeconfig}",
                f"--controllers={','.join(self._controllers)}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={free_port()}",
                "--kube-api-qps=500",
                "--kube-api-burst=500",
                "--concurrent-deployment-syncs=20",
                "--concurrent-replicaset-syncs=20",
            )
        if self._pods:
            self._run(
                "kube-scheduler",
                f"--kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={free_port()}",
            )
            self.kubectl("apply", "-f", "-", input=json.dumps(_NODE))
            self._run(
                "kwok",
                f"--kubeconfig={self.kubeconfig}",
                "--manage-all-nodes=true",
                f"--config={files('kubeshard_apiserver.testing') / 'kube' / 'stages.yaml'}",
                f"--server-address=127.0.0.1:{free_port()}",
            )

    def _run(self, program: str, *arguments: str, name: str = "") -> Child:
        name = name or program
        child = Child(name, [str(self._assets / program), *arguments], self.folder / f"{name}.log")
        self._children.append(child)
        return child

    def _answers(self, path: str, port: int) -> bool:
        try:
            trust = ssl.create_default_context(cafile=str(self.certificate_authority))
            connection = HTTPSConnection("127.0.0.1", port, timeout=2, context=trust)
            with closing(connection):
                connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
                return connection.getresponse().status == 200
        except (OSError, HTTPException):  # not written yet, not listening yet, or cut off
            return False

    def _write_kubeconfig(self) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "kubeshard",
                    "cluster": {
                        "server": self.url,
                        "certificate-authority": str(self.certificate_authority),
                    },
                }
            ],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "kubeshard", "context": {"cluster": "kubeshard", "user": "admin"}}],
            "current-context": "kubeshard",
        }
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(document, indent=1))

    def _failed(self, problem: str, child: Child) -> ControlPlaneFailed:
        return ControlPlaneFailed(
            f"{problem}; its last output:\n{child.tail()}\nall logs are in {self.folder}"
        )


def free_port() -> int:
    """A TCP port of the loopback interface on which nothing listens at the moment; never the same one twice.

    It lies below the range of ephemeral ports, so no outgoing connection takes it before its user does.
    """
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        if port in _given_ports:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given_ports.add(port)
        return port


def wait_until(condition: Callable[[], bool], within: float = 30.0, what: str = "the condition") -> None:
    """Poll a condition. Raises AssertionError, which names `what`, if it does not hold in time."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not hold within {within:.0f} s")
        time.sleep(_POLL)


_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "pretended", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {
        "allocatable": {"cpu": "1000", "memory": "1Ti", "pods": "100000"},
        "capacity": {"cpu": "1000", "memory": "1Ti", "pods": "100000"},
    },
}


def _new_authority() -> CertificatePair:
    from kubeshard.runtime.certificate_authority import new_authority

    return new_authority("kubeshard-clients", time.time(), _DAY)


def _write_rsa_key(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
