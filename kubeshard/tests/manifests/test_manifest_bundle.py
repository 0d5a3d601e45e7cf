"""The OLM bundle of an operator says what its manifests say, as far as OLM does not do that itself."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from test_manifest_operator import Page, manager, reconcile, titled
from test_manifest_operator_files import IMAGE, OPERATORS

from kubeshard import Controller, Manager
from kubeshard.cli.manifests import manifests
from kubeshard.core.errors import ConfigurationError, NotFound
from kubeshard.core.selectors import LabelSelector
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.operator_bundle import CERTIFICATES, operator_bundle
from kubeshard.manifests.values import OperatorValues, chosen
from kubeshard.runtime.certificate_authority import new_authority, new_server_leaf
from kubeshard.runtime.clock import SystemClock
from kubeshard.webhook import CertificateFiles, Webhooks, validates
from kubeshard_apiserver.testing import MemoryApi


def bundle(made: Manager, **values: Any) -> Mapping[str, Any]:
    """The parsed files by path."""
    files = operator_bundle(
        made, "my_pages:manager", "pages", chosen(OperatorValues, {"image": IMAGE, **values})
    )
    return {path: yaml.safe_load(text) if path.endswith(".yaml") else text for path, text in files.items()}


def version(made: Manager, **values: Any) -> Any:
    return bundle(made, **values)["manifests/pages.clusterserviceversion.yaml"]["spec"]


def deployed(spec: Any) -> Any:
    return spec["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]["containers"][0]


def rules(roles: Any) -> list[str]:
    return sorted(json.dumps(rule, sort_keys=True) for role in roles for rule in role["rules"])


@pytest.mark.parametrize("operator", ["plain", "sharded"])
def test_a_bundle_grants_the_printed_rights_and_runs_the_printed_deployment(operator: str) -> None:
    values = chosen(OperatorValues, {"image": IMAGE, "namespace": "pages", "watchNamespaces": ["one"]})
    printed = operator_objects(OPERATORS[operator](), "my_pages:manager", "pages", values)
    spec = version(OPERATORS[operator]())
    install = spec["install"]["spec"]
    for kind, key in (("Role", "permissions"), ("ClusterRole", "clusterPermissions")):
        assert rules(install.get(key, [])) == rules(each for each in printed if each["kind"] == kind)
    (deployment,) = (each for each in printed if each["kind"] == "Deployment")
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {**deployed(spec), "env": None} == {**only, "env": None}
    place = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
    assert {"name": "WATCH_NAMESPACE", "valueFrom": place} in deployed(spec)["env"]


def test_olm_registers_the_webhooks_and_the_operator_has_no_right_to() -> None:
    made = OPERATORS["converting"]()
    spec = version(made)
    calls = {each["generateName"]: each for each in spec["webhookdefinitions"]}
    (registered,) = Webhooks("pages", [titled], namespace="pages").manifests()
    (webhook,) = registered["webhooks"]
    found = calls["titled.pages.pages.example.com"]
    assert found["webhookPath"] == webhook["clientConfig"]["service"]["path"]
    assert {key: found[key] for key in ("rules", "failurePolicy", "sideEffects", "timeoutSeconds")} == {
        key: webhook[key] for key in ("rules", "failurePolicy", "sideEffects", "timeoutSeconds")
    }
    assert (found["type"], found["targetPort"]) == ("ValidatingAdmissionWebhook", 9443)
    conversion = calls["convert.sheets.pages.example.com"]
    assert conversion["conversionCRDs"] == ["sheets.pages.example.com"]
    assert deployed(spec)["args"][-2:] == [f"--webhook-cert-dir={CERTIFICATES}", "--no-webhook-registration"]
    granted = json.dumps(spec["install"])
    assert "secrets" not in granted
    assert "webhookconfigurations" not in granted
    modes = {each["type"]: each["supported"] for each in spec["installModes"]}
    assert modes == {
        "OwnNamespace": False,
        "SingleNamespace": False,
        "MultiNamespace": False,
        "AllNamespaces": True,
    }


def test_an_operator_without_conversions_may_work_in_some_namespaces() -> None:
    assert all(each["supported"] for each in version(manager())["installModes"])


async def test_an_api_server_takes_the_definitions_and_examples_of_a_bundle(kube_memory: MemoryApi) -> None:
    found = bundle(OPERATORS["sharded"]())
    definitions = [each for path, each in found.items() if path.endswith(("_themes.yaml", "_websites.yaml"))]
    assert len(definitions) == 2
    await kube_memory.install(*definitions)
    made = found["manifests/pages.clusterserviceversion.yaml"]
    examples = json.loads(made["metadata"]["annotations"]["alm-examples"])
    assert {each["kind"] for each in examples} == {"Theme", "Website"}
    async with kube_memory.client() as client:
        for each in examples:
            namespace = {} if each["kind"] == "Theme" else {"namespace": "default"}
            await client.apply({**each, "metadata": {**each["metadata"], **namespace}})
    owned = {each["kind"]: each for each in made["spec"]["customresourcedefinitions"]["owned"]}
    assert {each["path"] for each in owned["Website"]["specDescriptors"]} >= {"theme"}


@pytest.mark.parametrize("said", ["1.2.0", "1.2.0-RC.1+build.5"])
def test_every_version_makes_a_legal_name(said: str) -> None:
    found = bundle(manager(), about={"version": said})["manifests/pages.clusterserviceversion.yaml"]
    assert re.fullmatch(
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", found["metadata"]["name"]
    )
    assert found["metadata"]["name"] == f"pages.v{said.replace('+', '-').lower()}"
    assert found["spec"]["version"] == said


def test_what_nobody_has_said_of_an_operator_is_named_and_not_written_as_empty(tmp_path: Path) -> None:
    (tmp_path / "icon.svg").write_text("<svg/>")
    target = [
        "operator",
        "kubeshard_lab.examples.checksum.operator",
        "--name",
        "pages",
        "--set",
        f"image={IMAGE}",
    ]
    command = [*target, "--format", "olm", "--folder", str(tmp_path / "bundle")]

    def written(*more: str) -> tuple[Any, str]:
        done = CliRunner().invoke(manifests, [*command, *more], catch_exceptions=False)
        assert done.exit_code == 0
        file = tmp_path / "bundle" / "manifests" / "pages.clusterserviceversion.yaml"
        return yaml.safe_load(file.read_text())["spec"], done.stderr

    spec, said = written()
    assert not spec.keys() & {"provider", "maintainers", "keywords", "links", "icon"}
    for each in ("displayName", "description", "url", "provider", "maintainers", "keywords"):
        assert f"about.{each}" in said
    assert "--icon" in said
    spec, said = written(
        *(
            "--set",
            "about.provider=Example",
            "--set",
            "about.maintainers=[{name: Ada, email: ada@example.com}]",
        ),
        *("--icon", str(tmp_path / "icon.svg")),
    )
    assert spec["provider"] == {"name": "Example"}
    assert spec["maintainers"] == [{"name": "Ada", "email": "ada@example.com"}]
    (icon,) = spec["icon"]
    assert (icon["mediatype"], b64decode(icon["base64data"])) == ("image/svg+xml", b"<svg/>")
    for each in ("provider", "maintainers", "--icon"):
        assert each not in said


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"ring": {"enabled": True}}, "value ring: .*`kubeshard manifests ring`"),
        ({"networkPolicy": {"enabled": True}}, "value networkPolicy"),
        ({"watchNamespaces": ["one"]}, "an OperatorGroup names the namespaces"),
    ],
)
def test_what_olm_does_not_install_is_refused(values: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        bundle(OPERATORS["sharded"](), **values)


def test_a_webhook_that_olm_would_call_too_often_is_refused() -> None:
    @validates(Page, namespaces=LabelSelector(match_labels={"a": "b"}))
    def narrow(page: Page) -> None: ...

    pages = Controller(name="pages", reconciler=reconcile, primary=Page)
    with pytest.raises(ConfigurationError, match="OLM has no namespaceSelector"):
        bundle(Manager([pages], servers=[Webhooks("pages", [narrow])]))


async def test_a_program_whose_webhooks_others_register_serves_them_and_registers_none(
    kube_memory: MemoryApi, tmp_path: Path
) -> None:
    now = SystemClock().wall()
    pair = new_server_leaf(new_authority("olm", now, 86400), ("pages-service.pages.svc",), now, 86400)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.private_key)
    webhooks = Webhooks("pages", [titled], namespace="pages", host="127.0.0.1", port=0)
    async with kube_memory.client() as client:
        made = Manager(servers=[webhooks], client=client, status_pages=None)
        made.only_serve_webhooks(CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key"))
        assert list(made.grants()) == []
        running = asyncio.create_task(made.run())
        async with asyncio.timeout(20):
            await made.webhooks_registered()
            while webhooks.unready():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        with pytest.raises(NotFound):
            await client.raw(
                "GET", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/pages"
            )
        running.cancel()
        await asyncio.wait([running])
