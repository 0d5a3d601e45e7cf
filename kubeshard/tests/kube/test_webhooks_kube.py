"""Typed webhooks as called by an API server: registered by the manager, with its own certificate."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import importlib.util
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeshard import Client, ConfigMap, KubeObject, Manager, ObjectMeta, Struct, field
from kubeshard.core import MergePatch, NotFound, Secret
from kubeshard.core.errors import ApiError, KubeshardError
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupResource
from kubeshard.core.selectors import LabelSelector
from kubeshard.crd import CustomResource, definition
from kubeshard.manager.roles import roles
from kubeshard.manifests.operator import converting
from kubeshard.runtime.certificate_authority import new_authority, new_client_leaf
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.rng import SystemRng
from kubeshard.runtime.tls import CertificatePair
from kubeshard.webhook import Denied, SharedCertificate, Webhooks, converts, defaults, validates
from kubeshard_apiserver.testing.control_plane import ControlPlane, free_port

EXAMPLE = Path(__file__).parents[3] / "examples" / "no_latest.py"
GROUP = "typed.example.com"


class ValidatingWebhookConfiguration(
    KubeObject, group="admissionregistration.k8s.io", version="v1", namespaced=False
):
    webhooks: tuple[Mapping[str, Any], ...] = ()


class MutatingWebhookConfiguration(
    KubeObject, group="admissionregistration.k8s.io", version="v1", namespaced=False
):
    webhooks: tuple[Mapping[str, Any], ...] = ()


@asynccontextmanager
async def serving(client: Client, webhooks: Webhooks) -> AsyncIterator[Manager]:
    """Runs a manager that serves the webhooks; its registrations are removed at the end."""
    manager = Manager(servers=[webhooks], client=client, status_pages=None)
    task = asyncio.create_task(manager.run())
    try:
        yield manager
    finally:
        task.cancel()
        await asyncio.wait([task])
        for kind in (ValidatingWebhookConfiguration, MutatingWebhookConfiguration):
            with suppress(NotFound):
                await client.delete(kind, webhooks.name)


async def until(what: Callable[[], Any]) -> None:
    """Polls, because the API server learns of configurations through its own watch."""
    async with asyncio.timeout(30):
        while not await what():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)


def refused(client: Client, obj: KubeObject, says: str) -> Callable[[], Any]:
    async def tried() -> bool:
        try:
            await client.create(obj, dry_run=True)
        except ApiError as error:
            return says in str(error)
        return False

    return tried


async def test_the_example_keeps_latest_out(
    kube_client: Client, namespace: str, install_crd: Callable[[Mapping[str, Any]], None]
) -> None:
    spec = importlib.util.spec_from_file_location("no_latest", EXAMPLE)
    assert spec
    assert spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    install_crd(definition(example.App))

    def app(image: str) -> Any:
        return example.App(metadata=ObjectMeta(name="a", namespace=namespace), image=image)

    webhooks = Webhooks(
        f"example-{namespace}", [example.no_latest], url="https://127.0.0.1", host="127.0.0.1", port=0
    )
    async with serving(kube_client, webhooks):
        await until(
            refused(kube_client, app("app:latest"), "denied the request: say which version of the image")
        )
        assert (await kube_client.create(app("app:1"))).image == "app:1"


class KeepSpec(Struct):
    keep: int = 0


@CustomResource()
class Keeper(KubeObject, group=GROUP, version="v1"):
    spec: KeepSpec | None = None


@pytest.mark.parametrize("spec", [None, KeepSpec(keep=0)])
async def test_a_condition_on_the_spec_lets_moves_pass_what_is_no_longer_valid(
    kube_client: Client,
    namespace: str,
    install_crd: Callable[[Mapping[str, Any]], None],
    spec: KeepSpec | None,
) -> None:
    changed = {"changes-spec": "oldObject == null || object.?spec != oldObject.?spec"}

    @validates(Keeper, conditions=changed)
    def keeps_some(it: Keeper) -> None:
        if it.spec is None or it.spec.keep == 0:
            raise Denied("spec.keep must be at least 1")

    install_crd(definition(Keeper))
    stored = await kube_client.create(Keeper(metadata=ObjectMeta(name="old", namespace=namespace), spec=spec))
    webhooks = Webhooks(f"moves-{namespace}", [keeps_some], url="https://127.0.0.1", host="127.0.0.1", port=0)
    async with serving(kube_client, webhooks):
        new = Keeper(metadata=ObjectMeta(name="new", namespace=namespace))
        await until(refused(kube_client, new, "spec.keep must be at least 1"))
        moved = await kube_client.patch(
            Keeper, "old", namespace, MergePatch({"metadata": {"labels": {"shard": "b"}}}), base=stored
        )
        assert moved.metadata.labels == {"shard": "b"}
        other = {"keep": 0} if spec is None else None
        with pytest.raises(ApiError, match="at least 1"):
            await kube_client.patch(Keeper, "old", namespace, MergePatch({"spec": other}), base=moved)


@pytest.mark.kube
async def test_an_api_server_is_answered_if_it_shows_a_certificate_of_the_authority(tmp_path: Path) -> None:
    now = SystemClock().wall()
    authority = new_authority("control-plane", now, 86400)
    shown = new_client_leaf(authority, "apiserver", (), now, 86400)
    known, foreign = tmp_path / "ca.crt", tmp_path / "other.crt"
    known.write_bytes(authority.certificate)
    foreign.write_bytes(new_authority("elsewhere", now, 86400).certificate)

    @defaults(ConfigMap, failure_policy="Fail")
    def sized(it: ConfigMap) -> ConfigMap:
        return msgspec.structs.replace(it, data={"size": "1"})

    with ControlPlane(arguments=[f"--admission-control-config-file={identifying(shown, tmp_path)}"]) as kube:
        client = await Client.connect(kube.kubeconfig)
        async with client:

            async def answered() -> bool:
                return (await client.create(probe("default"), dry_run=True)).data == {"size": "1"}

            for file, says in ((known, ""), (foreign, "failed calling webhook")):
                webhooks = Webhooks(
                    "sizes", [sized], url="https://127.0.0.1", host="127.0.0.1", port=0, client_authority=file
                )
                async with serving(client, webhooks):
                    await until(refused(client, probe("default"), says) if says else answered)


def identifying(pair: CertificatePair, folder: Path) -> Path:
    """The configuration of an API server that shows this certificate to all webhooks."""
    user = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.private_key).decode(),
    }
    kubeconfig, file = folder / "webhooks.kubeconfig", folder / "admission.yaml"
    kubeconfig.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]})
    )
    version = "apiserver.config.k8s.io/v1"
    configuration = {
        "apiVersion": version,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    plugins = [
        {"name": f"{kind}AdmissionWebhook", "configuration": configuration}
        for kind in ("Mutating", "Validating")
    ]
    file.write_text(json.dumps({"apiVersion": version, "kind": "AdmissionConfiguration", "plugins": plugins}))
    return file


def probe(namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="probe", namespace=namespace), data=data)


async def test_defaults_and_validators_of_a_built_in_kind_work_together(
    kube_client: Client, namespace: str
) -> None:
    here = LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace})

    @defaults(ConfigMap, namespaces=here)
    def sized(it: ConfigMap) -> ConfigMap | None:
        if "size" in (it.data or {}):
            return None
        return msgspec.structs.replace(it, data={**(it.data or {}), "size": "1"})

    @validates(ConfigMap, namespaces=here)
    async def only_grows(it: ConfigMap, old: ConfigMap | None) -> None:
        await asyncio.sleep(0)
        if old is not None and int((it.data or {})["size"]) < int((old.data or {})["size"]):
            raise Denied("a size only grows")

    @validates(ConfigMap, operations=("DELETE",), namespaces=here)
    def kept(it: ConfigMap) -> None:
        if it.metadata.has_label("keep"):
            raise Denied(f"{it.metadata.name} is kept")

    @validates(ConfigMap, namespaces=here, objects=LabelSelector(match_labels={"fails": "hard"}))
    def fails_hard(it: ConfigMap) -> None:
        raise RuntimeError("broken")

    @validates(
        ConfigMap,
        failure_policy="Ignore",
        namespaces=here,
        objects=LabelSelector(match_labels={"fails": "soft"}),
    )
    def fails_softly(it: ConfigMap) -> None:
        raise RuntimeError("broken")

    functions = [sized, only_grows, kept, fails_hard, fails_softly]
    webhooks = Webhooks(f"typed-{namespace}", functions, url="https://127.0.0.1", host="127.0.0.1", port=0)

    def config_map(name: str, **labels: str) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), data={"a": "b"})

    async with serving(kube_client, webhooks):
        await until(refused(kube_client, config_map("probe", fails="hard"), "failed calling webhook"))
        assert webhooks.unready() is None
        made = await kube_client.create(config_map("one"))
        assert made.data == {"a": "b", "size": "1"}
        await kube_client.patch(ConfigMap, "one", namespace, MergePatch({"data": {"size": "5"}}))
        with pytest.raises(ApiError, match="a size only grows"):
            await kube_client.patch(ConfigMap, "one", namespace, MergePatch({"data": {"size": "4"}}))
        await kube_client.create(config_map("soft", fails="soft"))
        await kube_client.create(config_map("two", keep=""))
        with pytest.raises(ApiError, match="two is kept"):
            await kube_client.delete(ConfigMap, "two", namespace)
        await kube_client.delete(ConfigMap, "one", namespace)

    # The next version of the operator has no validators; those registered under this name must not be called in vain.
    await kube_client.apply(
        Webhooks(webhooks.name, [only_grows], url="https://127.0.0.1:1").manifests()[0],
        field_manager=f"{webhooks.name}-webhooks",
        force=True,
    )
    later = Webhooks(webhooks.name, [sized], url="https://127.0.0.1", host="127.0.0.1", port=0)
    async with serving(kube_client, later):

        async def gone() -> bool:
            return not (await kube_client.get(ValidatingWebhookConfiguration, webhooks.name)).webhooks

        await until(gone)


async def test_a_service_is_registered_with_the_authority_of_a_shared_secret(
    kube_client: Client, namespace: str
) -> None:
    """The webhook cannot be called here, so the test checks what is registered and stored."""

    @validates(ConfigMap, namespaces=LabelSelector(match_labels={"never": "matches"}))
    def never(it: ConfigMap) -> None: ...

    name = f"shared-{namespace}"
    webhooks = Webhooks(name, [never], namespace=namespace, service="svc", host="127.0.0.1", port=0)
    async with serving(kube_client, webhooks):

        async def registered() -> Any:
            with suppress(NotFound):
                return await kube_client.get(ValidatingWebhookConfiguration, name)

        await until(registered)
        (webhook,) = (await kube_client.get(ValidatingWebhookConfiguration, name)).webhooks
        secret = await kube_client.get(Secret, f"{name}-webhook-cert", namespace)
        assert secret.metadata.labels == {"app.kubernetes.io/name": name}
        config = webhook["clientConfig"]
        assert config["caBundle"] == (secret.data or {})["ca.crt"]
        assert config["service"] == {
            "namespace": namespace,
            "name": "svc",
            "path": "/validate/never",
            "port": 443,
        }
        other = SharedCertificate(
            kube_client,
            (f"svc.{namespace}.svc", f"svc.{namespace}", f"svc.{namespace}.svc.cluster.local"),
            namespace=namespace,
            secret=f"{name}-webhook-cert",
            app=name,
            clock=SystemClock(),
            rng=SystemRng(),
        )
        assert (await other._wanted()).bundle
        assert await kube_client.get(Secret, f"{name}-webhook-cert", namespace) == secret


async def test_outside_of_a_pod_the_place_has_to_be_said(kube_client: Client) -> None:
    @validates(ConfigMap)
    def never(it: ConfigMap) -> None: ...

    manager = Manager(
        servers=[Webhooks("placeless", [never])],
        client=kube_client,
        status_pages=None,
    )
    with pytest.raises(KubeshardError, match="outside a pod, set the Service's namespace="):
        await manager.run()


class SpecV1(Struct):
    image: str = ""


class SpecV2(Struct):
    repository: str = ""
    tag: str = ""


@CustomResource()
class AppV1(KubeObject, group=GROUP, version="v1", kind="TypedApp", complete=True):
    spec: SpecV1 = field(default_factory=SpecV1)


@CustomResource(storage=True)
class AppV2(KubeObject, group=GROUP, version="v2", kind="TypedApp", complete=True):
    spec: SpecV2 = field(default_factory=SpecV2)


@converts(AppV1, AppV2)
def up(old: AppV1) -> AppV2:
    repository, _, tag = old.spec.image.partition(":")
    return AppV2(metadata=old.metadata, spec=SpecV2(repository=repository, tag=tag))


@converts(AppV2, AppV1)
async def down(new: AppV2) -> AppV1:
    if new.spec.tag == "broken":
        raise RuntimeError("broken")
    return AppV1(spec=SpecV1(image=f"{new.spec.repository}:{new.spec.tag}"))


async def test_objects_are_converted_between_versions_by_functions(
    kube_control_plane: ControlPlane,
    kube_client: Client,
    namespace: str,
    install_crd: Callable[[Mapping[str, Any]], None],
) -> None:
    install_crd(definition(AppV1, AppV2))
    webhooks = Webhooks("typed-conversion", [up, down], url="https://127.0.0.1", host="127.0.0.1", port=0)
    meta = ObjectMeta(name="a", namespace=namespace, labels={"x": "y"})
    async with serving(kube_client, webhooks):
        app = AppV1(metadata=meta, spec=SpecV1(image="app:1"))

        async def converts_now() -> bool:
            with suppress(ApiError):
                made = await kube_client.create(app, dry_run=True)
                return made.spec == app.spec
            return False

        await until(converts_now)
        made = await kube_client.create(app)
        stored = await kube_client.get(AppV2, "a", namespace)
        assert stored.spec == SpecV2(repository="app", tag="1")
        assert stored.metadata.uid == made.metadata.uid
        assert stored.metadata.labels == {"x": "y"}
        changed = await kube_client.replace(
            msgspec.structs.replace(stored, spec=SpecV2(repository="app", tag="2"))
        )
        assert changed.spec.tag == "2"
        assert (await kube_client.get(AppV1, "a", namespace)).spec == SpecV1(image="app:2")
        await kube_client.replace(msgspec.structs.replace(changed, spec=SpecV2(tag="broken")))
        with pytest.raises(ApiError, match=r"conversion to \S+ failed: RuntimeError"):
            await kube_client.get(AppV1, "a", namespace)
        await kube_client.delete(AppV2, "a", namespace)


@CustomResource()
class EarlyV1(KubeObject, group=GROUP, version="v1", kind="Early", complete=True):
    spec: SpecV1 = field(default_factory=SpecV1)


@CustomResource(storage=True)
class EarlyV2(KubeObject, group=GROUP, version="v2", kind="Early", complete=True):
    spec: SpecV2 = field(default_factory=SpecV2)


@converts(EarlyV1, EarlyV2)
def early_up(old: EarlyV1) -> EarlyV2:
    repository, _, tag = old.spec.image.partition(":")
    return EarlyV2(spec=SpecV2(repository=repository, tag=tag))


@converts(EarlyV2, EarlyV1)
def early_down(new: EarlyV2) -> EarlyV1:
    return EarlyV1(spec=SpecV1(image=f"{new.spec.repository}:{new.spec.tag}"))


EARLY = "earlies.typed.example.com"


def printed(webhooks: Webhooks, namespace: str) -> Mapping[str, Any]:
    """The definition as the commands print it."""
    conversions = Manager(servers=[webhooks]).deployment_needs().conversions
    return converting(definition(EarlyV1, EarlyV2), conversions, namespace)


async def remove_definition(client: Client) -> None:
    """Returns when it is gone: one that is being deleted would be merged with the next one."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{EARLY}"

    async def gone() -> bool:
        try:
            await client.raw("GET", path)
        except NotFound:
            return True
        return False

    await client.raw("DELETE", path)
    await until(gone)


async def test_what_is_created_before_the_operator_ever_ran_is_refused_and_loses_no_field(
    kube_client: Client, namespace: str, install_crd: Callable[[Mapping[str, Any]], None]
) -> None:
    place: dict[str, Any] = {"url": "https://127.0.0.1", "host": "127.0.0.1", "port": free_port()}
    webhooks = Webhooks("early-conversion", [early_up, early_down], **place)
    install_crd(printed(webhooks, namespace))
    app = EarlyV1(metadata=ObjectMeta(name="a", namespace=namespace), spec=SpecV1(image="app:1"))
    with pytest.raises(ApiError, match="conversion webhook"):
        await kube_client.create(app)
    async with serving(kube_client, webhooks):

        async def created() -> bool:
            with suppress(ApiError):
                return (await kube_client.create(app)).spec == app.spec
            return False

        await until(created)
        assert (await kube_client.get(EarlyV2, "a", namespace)).spec == SpecV2(repository="app", tag="1")
        await kube_client.delete(EarlyV2, "a", namespace)
    await remove_definition(kube_client)


async def test_the_operator_adds_its_authority_to_a_definition_that_was_applied_without_it(
    kube_client: Client, namespace: str
) -> None:
    """Nothing runs behind the Service here, so nothing is converted."""
    name = f"early-{namespace}"
    webhooks = Webhooks(name, [early_up, early_down], host="127.0.0.1", port=0, namespace=namespace)
    user = kube_client.with_field_manager("kubectl")
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{EARLY}"
    try:
        await user.apply(printed(webhooks, namespace))

        async def conversion() -> Any:
            found = msgspec.json.decode((await kube_client.raw("GET", path)).body)
            return found["spec"]["conversion"]

        async def authorised() -> Any:
            return (await conversion())["webhook"]["clientConfig"].get("caBundle")

        service = {
            "namespace": namespace,
            "name": name,
            "path": "/convert/early.typed.example.com",
            "port": 443,
        }
        assert await conversion() == {
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]},
        }
        async with serving(kube_client, webhooks):
            await until(authorised)
        secret = await kube_client.get(Secret, f"{name}-webhook-cert", namespace)
        assert await authorised() == (secret.data or {})["ca.crt"]
        await user.apply(
            printed(webhooks, namespace)
        )  # the next release: no conflict, and the authority stays
        assert await authorised() == (secret.data or {})["ca.crt"]
    finally:
        await remove_definition(kube_client)


DEVELOPER = (
    *(
        Grant.on(GroupResource("admissionregistration.k8s.io", f"{does}webhookconfigurations"), verb)
        for does in ("validating", "mutating")
        for verb in ("get", "create", "patch", "delete")
    ),
    Grant.on(GroupResource("apiextensions.k8s.io", "customresourcedefinitions"), "patch"),
    Grant.on(ConfigMap, "create"),
)
"""The rights that docs/how-to/ship.md names."""


async def test_the_rights_of_the_page_are_enough_to_have_a_program_called_and_to_put_back_what_was_before(
    kube_client: Client,
    namespace: str,
    install_crd: Callable[[Mapping[str, Any]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    @validates(Secret, namespaces=LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace}))
    def refused_here(it: Secret) -> None:
        raise Denied("not here")

    name = f"limited-{namespace}"
    for manifest in roles(DEVELOPER, name, account=(namespace, "developer")):
        await kube_client.apply_manifest(manifest)
    user = {"Impersonate-User": f"system:serviceaccount:{namespace}:developer"}
    limited = dataclasses.replace(kube_client.config, impersonate=user, namespace=namespace)
    webhooks = Webhooks(
        name, [refused_here, early_up, early_down], namespace=namespace, host="127.0.0.1", port=0
    )
    install_crd(definition(EarlyV1, EarlyV2))
    before = await conversion_of(kube_client)
    secret = Secret(metadata=ObjectMeta(name="any", namespace=namespace))
    manager = Manager(servers=[webhooks], client=limited, status_pages=None)
    manager.call_webhooks_at("https://127.0.0.1")

    async def is_permitted() -> bool:
        async with Client(limited) as client:
            return await client.can_i("create", "", "configmaps", namespace=namespace)

    async def is_tried() -> bool:
        return any(record.msg in TRIED for record in caplog.records)

    try:
        await until(is_permitted)
        with caplog.at_level("INFO", "kubeshard.webhook"):
            task = asyncio.create_task(manager.run())
            await until(is_tried)
            assert (await conversion_of(kube_client))["strategy"] == "Webhook"
            await until(refused(kube_client, secret, "not here"))
            task.cancel()
            await asyncio.wait([task])
        (tried,) = (record for record in caplog.records if record.msg in TRIED)
        assert tried.msg == TRIED[0], tried.getMessage()
        assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
        assert await conversion_of(kube_client) == before
        with pytest.raises(NotFound):
            await kube_client.get(ValidatingWebhookConfiguration, name)
    finally:
        await remove_definition(kube_client)
        for kind in ("clusterroles", "clusterrolebindings"):
            with suppress(NotFound):
                await kube_client.raw("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")


TRIED = (
    "The API server calls this program",
    "The API server does not call this program; nothing is checked",
    "Not probed whether the API server calls this program",
)


async def conversion_of(client: Client) -> dict[str, Any]:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{EARLY}"
    found = json.loads((await client.raw("GET", path)).body)
    return dict(found["spec"]["conversion"])


async def test_a_real_server_takes_a_temporary_registration_and_has_the_one_before_afterwards(
    kube_client: Client, namespace: str
) -> None:
    """Also one that was applied by hand, which server-side apply alone could not replace."""

    @validates(ConfigMap, namespaces=LabelSelector(match_labels={"never": "matches"}))
    def never(it: ConfigMap) -> None: ...

    @validates(ConfigMap, namespaces=LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace}))
    def refused_here(it: ConfigMap) -> None:
        raise Denied("not here")

    name = f"developed-{namespace}"
    (manifest,) = Webhooks(name, [never], namespace=namespace).manifests("Y2E=")
    await kube_client.apply(manifest, field_manager="kubectl")
    before = await kube_client.get(ValidatingWebhookConfiguration, name)
    webhooks = Webhooks(name, [refused_here], namespace=namespace, host="127.0.0.1", port=0)
    manager = Manager(servers=[webhooks], client=kube_client, status_pages=None)
    manager.call_webhooks_at("https://127.0.0.1")
    task = asyncio.create_task(manager.run())
    await until(refused(kube_client, probe(namespace), "not here"))
    task.cancel()
    await asyncio.wait([task])
    after = await kube_client.get(ValidatingWebhookConfiguration, name)
    assert after.webhooks == before.webhooks
    assert not after.metadata.annotations
    await kube_client.delete(ValidatingWebhookConfiguration, name)
