"""The guarantees of `kubeshard_apiserver.testing.ControlPlane`, with the real programs."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeshard.client import Client
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.errors import Forbidden
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.webhook.certificates import ServingCertificate
from kubeshard.webhook.review import AdmissionAnswer
from kubeshard.webhook.selfsigned import renewed
from kubeshard.webhook.server import WebhookServer
from kubeshard_apiserver.testing import RELEASE, ControlPlane, ControlPlaneFailed, wait_until
from kubeshard_apiserver.testing.assets import ASSETS_VARIABLE
from kubeshard_apiserver.testing.child import is_running

pytestmark = pytest.mark.kube

SHARDER = str(Path(__file__).resolve().parents[3] / "deploy" / "kustomize" / "sharder")


@pytest.fixture(scope="module")
def busy_plane() -> Iterator[ControlPlane]:
    """A control plane with controllers and simulated pods."""
    with ControlPlane(pods=True, feature_gates=["ShardedListAndWatch=true"]) as kube:
        yield kube


def test_it_says_which_release_it_is(control_plane: ControlPlane) -> None:
    if os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"{ASSETS_VARIABLE} may name another release")
    version = json.loads(control_plane.kubectl("version", "--output=json"))
    assert version["serverVersion"]["gitVersion"] == RELEASE
    assert version["clientVersion"]["gitVersion"] == RELEASE


def test_its_secrets_are_readable_by_their_owner_only(control_plane: ControlPlane) -> None:
    secret = [
        control_plane.kubeconfig,
        *control_plane.folder.glob("*.csv"),
        *control_plane.folder.glob("*.key"),
    ]
    assert len(secret) == 3
    assert {path.stat().st_mode & 0o077 for path in secret} == {0}


def test_a_deployment_becomes_available_and_its_owner_s_deletion_removes_it(busy_plane: ControlPlane) -> None:
    busy_plane.kubectl("create", "namespace", "pods")
    busy_plane.kubectl("create", "configmap", "owner", "-n", "pods")
    uid = busy_plane.kubectl("get", "configmap", "owner", "-n", "pods", "-o", "jsonpath={.metadata.uid}")
    busy_plane.kubectl("create", "deployment", "web", "--image=none", "--replicas=2", "-n", "pods")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    busy_plane.kubectl("patch", "deployment", "web", "-n", "pods", "--patch", patch)
    busy_plane.kubectl("wait", "--for=condition=Available", "deployment/web", "-n", "pods", "--timeout=60s")
    busy_plane.kubectl("delete", "configmap", "owner", "-n", "pods")
    wait_until(
        lambda: not busy_plane.kubectl("get", "pods", "-o", "name", "-n", "pods"), 60, "no pod is left"
    )


def test_a_namespace_is_gone_after_its_deletion(busy_plane: ControlPlane) -> None:
    busy_plane.kubectl("create", "namespace", "leaving")
    busy_plane.kubectl("create", "configmap", "content", "-n", "leaving")
    busy_plane.kubectl("delete", "namespace", "leaving", "--timeout=60s")
    assert busy_plane.kubectl("get", "namespace", "leaving", "--ignore-not-found") == ""


def test_feature_gates_reach_the_api_server(busy_plane: ControlPlane) -> None:
    half = "shardRange(object.metadata.uid,%20'0x0000000000000000',%20'0x8000000000000000')"

    def names(query: str) -> list[str]:
        answer = busy_plane.kubectl("get", "--raw", f"/api/v1/namespaces{query}")
        return [item["metadata"]["name"] for item in json.loads(answer)["items"]]

    for number in range(12):
        busy_plane.kubectl("create", "namespace", f"half-{number}")
    assert 0 < len(names(f"?shardSelector={half}")) < len(names(""))


class OwnCertificate:
    """A `CertificateSource` for the loopback address."""

    def __init__(self) -> None:
        self.identity = renewed(None, ["127.0.0.1"], time.time())

    async def load(self, serving: ServingCertificate) -> None:
        serving.install(self.identity.serving)

    async def run(self, serving: ServingCertificate) -> None: ...


async def test_the_api_server_calls_webhooks_on_loopback(
    control_plane: ControlPlane, kube_client: Client, namespace: str
) -> None:
    certificate = OwnCertificate()
    server = WebhookServer(
        {"/deny": lambda request: AdmissionAnswer(allowed=False, code=403, message="says the test")},
        certificate,
        host="127.0.0.1",
        port=0,
    )
    async with server.running(REAL_WORLD):
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [
                {
                    "name": "deny.kubeshard.test",
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{server.port}/deny",
                        "caBundle": b64encode(certificate.identity.bundle).decode(),
                    },
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "resources": ["configmaps"],
                            "operations": ["CREATE"],
                        }
                    ],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
        await asyncio.to_thread(control_plane.kubectl, "create", "-f", "-", input=json.dumps(configuration))
        with pytest.raises(Forbidden, match="says the test"):
            await create_config_maps(kube_client, namespace)


async def create_config_maps(client: Client, namespace: str) -> None:
    """Creates ConfigMaps one after the other, until the API server has noticed the webhook's configuration."""
    async with asyncio.timeout(30):
        for number in itertools.count():
            await client.create(ConfigMap(metadata=ObjectMeta(name=f"wanted-{number}", namespace=namespace)))
            await asyncio.sleep(0.05)


def test_a_program_that_ends_is_named_with_its_last_words_and_the_logs_stay() -> None:
    with pytest.raises(
        ControlPlaneFailed, match=r"(?s)kube-apiserver ended.*unknown flag.*all logs are in"
    ) as failed:
        ControlPlane(arguments=["--no-such-flag"]).__enter__()
    folder = Path(str(failed.value).rpartition(" ")[2])
    assert (folder / "kube-apiserver.log").exists()
    assert not (folder / "etcd").exists()
    shutil.rmtree(folder)


PARENT = """
from kubeshard_apiserver.testing import ControlPlane
with ControlPlane() as kube:
    print(kube.folder, *(child.pid for child in kube.children), flush=True)
    input()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "Ctrl-C"])
def test_no_program_outlives_its_parent(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        folder, *pids = parent.stdout.readline().split()
        assert len(pids) == 2
        parent.send_signal(number)
    for pid in pids:
        wait_until(lambda pid=pid: not is_running(int(pid)), 10, f"the end of process {pid}")
    if number == signal.SIGINT:
        assert not Path(folder).exists()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_cluster_to_play_with_serves_until_it_is_asked_to_stop() -> None:
    command = [sys.executable, "-m", "kubeshard_apiserver.testing"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as cluster:
        assert cluster.stdout is not None
        kubeconfig = cluster.stdout.readline().strip().removeprefix("export KUBECONFIG=")
        kubectl = cluster.stdout.readline().strip().removeprefix("alias kubectl=")
        ask = [kubectl, f"--kubeconfig={kubeconfig}", "get", "--raw", "/readyz"]
        assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == "ok"
        for change in (["apply", "--server-side"], ["delete", "--timeout=60s"]):
            # Also a namespace, and what is in it, goes.
            done = subprocess.run(
                [kubectl, f"--kubeconfig={kubeconfig}", *change, "-k", SHARDER],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
        cluster.send_signal(signal.SIGTERM)
    assert cluster.returncode == 0
    assert not Path(kubeconfig).exists()
