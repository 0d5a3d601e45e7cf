"""The real command against a real API server: samples, and mistakes that only a server can detect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from kubeshard.client import Client
from kubeshard.core import Namespace
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard_apiserver.testing import KubeApi
from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_lab.examples.webhosting.api import SKIP_WORKLOAD_LABEL, Website

WEBHOSTING, CHECKSUM = "kubeshard_lab.examples.webhosting", "kubeshard_lab.examples.checksum"


def command(
    kubeconfig: Path, *arguments: str, module: str = "kubeshard", timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@contextmanager
def running(kubeconfig: Path, *arguments: str, module: str = "kubeshard") -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def expired(kube_api: KubeApi, tmp_path: Path) -> Path:
    """The cluster's kubeconfig with a token that the server does not know."""
    return with_token(kube_api, "expired", tmp_path)


@pytest.fixture
def powerless(kube_api: KubeApi, tmp_path: Path) -> Path:
    """The kubeconfig of a service account without any rights."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    kube_api.install(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "powerless", "namespace": "default"},
        }
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = kube_api.call(
        lambda client: client.raw("POST", f"{accounts}/powerless/token", json.dumps(request).encode())
    )
    return with_token(kube_api, json.loads(answer.body)["status"]["token"], tmp_path)


def with_token(kube_api: KubeApi, token: str, folder: Path) -> Path:
    document = yaml.safe_load(kube_api.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    changed = folder / "kubeconfig"
    changed.write_text(yaml.safe_dump(document))
    return changed


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (WEBHOSTING, ("samples", "generate")),
        ("kubeshard", ("sharder",)),
        (CHECKSUM, ("--lease-namespace", "default")),
    ],
)
def test_credentials_that_the_server_refuses(expired: Path, module: str, arguments: tuple[str, ...]) -> None:
    done = command(expired, *arguments, module=module)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: the cluster refuses the credentials (GET /version: Unauthorized): log in again, or renew the "
        "token or certificate in the kubeconfig (in a pod: check its service account)\n"
    )


def test_rights_that_are_missing(powerless: Path) -> None:
    done = command(powerless, "samples", "apply", module=WEBHOSTING)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert 'User "system:serviceaccount:default:powerless" cannot' in line
    assert line.endswith("bind a role that grants this to the user, or use another one")


def test_a_sharder_that_may_not_keep_its_certificate_says_once_what_to_grant(
    powerless: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: config.sharding.timebertt.dev/v1alpha1\nkind: SharderConfig\n"
        "leaderElection: {leaderElect: false}\n"
        'metrics: {bindAddress: "0"}\nhealth: {bindAddress: "0"}\n'
        'webhook: {server: {bindAddress: "127.0.0.1:0"}}\n'
    )
    done = command(powerless, "sharder", "--config", str(config))
    assert done.returncode == 1
    assert done.stderr.count("cannot get resource") == 1
    assert done.stderr.splitlines()[-1].endswith(
        "; grant create, get and update on secrets there, or configure certificate files"
    )


def test_a_shard_of_a_ring_that_does_not_exist_says_so_and_what_to_do(kubeconfig: Path) -> None:
    options = ("--controllerring", "no-such-ring", "--lease-namespace", "default")
    with running(kubeconfig, *options, module=CHECKSUM) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert (
            "WARNING kubeshard.shard: There is no ControllerRing, and this instance assigns no objects "
            'ring=no-such-ring advice="give some instances mode='
        ) in line
        process.terminate()
        assert process.wait(10) == 0
        assert "Unclosed" not in process.stderr.read()


async def test_samples_are_applied_and_generated_where_asked(
    kubeconfig: Path, kube_client: Client, kube_api: KubeApi
) -> None:
    """D4 in docs/defects.md."""
    kube_api.install(controller_ring_crd())
    first = command(kubeconfig, "samples", "apply", module=WEBHOSTING)
    assert first.stderr == ""
    assert first.stdout.splitlines()[-1] == "applied Website library"
    assert command(kubeconfig, "samples", "apply", module=WEBHOSTING).stdout == first.stdout
    missing = command(kubeconfig, "samples", "generate", "--namespace", "default", module=WEBHOSTING)
    assert missing.returncode == 2
    assert missing.stderr == (
        "Error: no project: default (a project is a namespace with the label "
        "webhosting.timebertt.dev/project=true)\n"
    )
    options = ("--count", "3", "--namespace", "project-foo", "--skip-workload")
    made = command(kubeconfig, "samples", "generate", *options, module=WEBHOSTING)
    assert made.stdout == 'created 3 Websites in project "project-foo"\n'
    websites = await kube_client.list_all(Website, "project-foo")
    samples = [site for site in websites if site.metadata.label("generated-by") == "samples-generator"]
    assert len(samples) == 3
    assert all(site.metadata.has_label(SKIP_WORKLOAD_LABEL) for site in samples)
    assert {site.spec.theme for site in samples} <= {"exciting", "lame"}
    await kube_client.delete_collection(Website, "project-foo")
    await kube_client.delete(Namespace, "project-foo")


OPERATOR = """
from kubeshard import Context, Controller, KubeObject, Manager, Struct, field
from kubeshard.crd import CustomResource
from kubeshard.webhook import Denied, Webhooks, validates


class NoteSpec(Struct):
    text: str = ""


@CustomResource()
class Note(KubeObject, group="polite.example.com", version="v1"):
    spec: NoteSpec = field(default_factory=NoteSpec)


@validates(Note)
def polite(note: Note) -> None:
    if note.spec.text == "rude":
        raise Denied("be polite")


async def reconcile(ctx: Context, note: Note) -> None: ...


def manager() -> Manager:
    notes = Controller(name="notes", primary=Note, reconciler=reconcile)
    webhooks = Webhooks("polite", [polite], host="127.0.0.1", port=0)
    return Manager([notes], servers=[webhooks], status_pages=None)
"""
WEBHOOKS = "validatingwebhookconfigurations,mutatingwebhookconfigurations"


@pytest.fixture
def polite(tmp_path: Path, kubeconfig: Path) -> Iterator[Path]:
    """The folder of an operator with a webhook; its definition is removed at the end."""
    (tmp_path / "polite.py").write_text(OPERATOR)
    (tmp_path / "crd.yaml").write_text(
        developing(tmp_path, "crd", "show", "polite:Note").communicate(timeout=60)[0]
    )
    yield tmp_path
    kubectl(kubeconfig, "delete", "--ignore-not-found", "-f", str(tmp_path / "crd.yaml"))


def developing(folder: Path, *arguments: str, kubeconfig: Path = Path("none")) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kubeshard", *arguments],
        cwd=folder,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kubectl(kubeconfig: Path, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    program = find_assets(["kubectl"]) / "kubectl"
    command = [program, f"--kubeconfig={kubeconfig}", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)


def lines_until(process: subprocess.Popen[str], text: str) -> str:
    """What the program says, up to the line with this text."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if text in line:
            return said
    raise AssertionError(said)


def test_webhooks_in_development_are_tried_by_the_api_server_and_nothing_is_left(
    polite: Path, kubeconfig: Path
) -> None:
    before = kubectl(kubeconfig, "get", WEBHOOKS, "-o", "name").stdout
    arguments = ["run", "polite", "--apply", "crd.yaml", "--webhook-url", "https://127.0.0.1"]
    with developing(polite, *arguments, kubeconfig=kubeconfig) as process:
        try:
            said = lines_until(process, "The API server calls this program")
            assert "ValidatingWebhookConfiguration polite" in said
            note = {"apiVersion": "polite.example.com/v1", "kind": "Note", "metadata": {"name": "note"}}
            for text, refused in (("rude", True), ("kind", False)):
                given = json.dumps({**note, "spec": {"text": text}})
                done = kubectl(kubeconfig, "create", "--namespace", "default", "-f", "-", given=given)
                assert ("be polite" in done.stderr) == refused, done.stderr
                assert (done.returncode != 0) == refused
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=30)[1]
        finally:
            process.kill()
    assert "Webhooks are registered as before" in said
    assert "ValidatingWebhookConfiguration polite" in said
    assert kubectl(kubeconfig, "get", WEBHOOKS, "-o", "name").stdout == before


@pytest.mark.parametrize(
    ("host", "cause"),
    [("https://127.0.0.1:1", "connect"), ("https://127.0.0.1:{port}", "a call from here fails, too")],
    ids=["nobody", "another program"],
)
def test_a_url_that_does_not_lead_to_the_program_is_said_with_its_cause(
    host: str, cause: str, polite: Path, kubeconfig: Path, kube_api: KubeApi
) -> None:
    url = host.format(port=urlsplit(kube_api.url).port)
    before = kubectl(kubeconfig, "get", WEBHOOKS, "-o", "name").stdout
    arguments = ["run", "polite", "--apply", "crd.yaml", "--webhook-url", url]
    with developing(polite, *arguments, kubeconfig=kubeconfig) as process:
        try:
            said = lines_until(process, "The API server does not call this program; nothing is checked")
            assert cause in said
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert kubectl(kubeconfig, "get", WEBHOOKS, "-o", "name").stdout == before
