"""`kube_operator`: an operator works, webhooks and all, when the fixture returns, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kubeshard import (
    Client,
    ConfigMap,
    Context,
    Controller,
    KubeObject,
    LeaderElection,
    Manager,
    ObjectMeta,
    Struct,
    ensure,
    errors,
    field,
    until,
    wait_for,
)
from kubeshard.core.errors import ConfigurationError, Unprepared
from kubeshard.crd import CustomResource, definition
from kubeshard.manager import Runnable
from kubeshard.webhook import Denied, Webhooks, converts, defaults, validates
from kubeshard_apiserver.testing.kube_api import KubeApi
from kubeshard_apiserver.testing.operators import running_operator
from kubeshard_apiserver.testing.plugin import RunOperator

GROUP = "run.example.com"


class Configuration(KubeObject):
    webhooks: tuple[Mapping[str, Any], ...] = ()


class ValidatingWebhookConfiguration(
    Configuration, group="admissionregistration.k8s.io", version="v1", namespaced=False
): ...


class MutatingWebhookConfiguration(
    Configuration, group="admissionregistration.k8s.io", version="v1", namespaced=False
): ...


class CustomResourceDefinition(KubeObject, group="apiextensions.k8s.io", version="v1", namespaced=False):
    spec: Mapping[str, Any] = field(default_factory=dict)


class OldSpec(Struct):
    gigabytes: int = 0


class OldVault(KubeObject, group=GROUP, version="v1alpha1", kind="Vault"):
    spec: OldSpec = field(default_factory=OldSpec)


class VaultSpec(Struct):
    size: int = 0
    color: str | None = None


@CustomResource(storage=True)
class Vault(KubeObject, group=GROUP, version="v1"):
    spec: VaultSpec = field(default_factory=VaultSpec)


@validates(Vault)
def small(vault: Vault) -> None:
    if vault.spec.size > 100:
        raise Denied("too large")
    if vault.spec.size == 13:
        raise RuntimeError("a bug")


@defaults(Vault)
def painted(vault: Vault) -> Vault | None:
    if vault.spec.color is not None:
        return None
    return Vault(metadata=vault.metadata, spec=VaultSpec(size=vault.spec.size, color="gray"))


@converts(OldVault, Vault)
def newer(old: OldVault) -> Vault:
    return Vault(metadata=old.metadata, spec=VaultSpec(size=old.spec.gigabytes))


@converts(Vault, OldVault)
def older(vault: Vault) -> OldVault:
    return OldVault(metadata=vault.metadata, spec=OldSpec(gigabytes=vault.spec.size))


async def reconcile(ctx: Context, vault: Vault) -> None:
    meta = ObjectMeta(name=vault.metadata.name, namespace=vault.metadata.namespace)
    await ensure(ctx, ConfigMap(metadata=meta, data={"size": str(vault.spec.size)}), owner=vault)


def operator(*functions: Callable[..., Any], **options: Any) -> Manager:
    vaults = Controller(name="vault", reconciler=reconcile, primary=Vault, owns=[ConfigMap])
    servers = [Webhooks("run-vaults", functions)] if functions else []
    return Manager([vaults], servers=servers, **options)


@pytest.fixture
def vaults(kube_api: KubeApi) -> None:
    kube_api.install(definition(Vault, OldVault))


def vault(name: str, namespace: str, size: int) -> Vault:
    return Vault(metadata=ObjectMeta(name=name, namespace=namespace), spec=VaultSpec(size=size))


def registered(kube_api: KubeApi) -> list[str]:
    """What leads to the webhooks of the operator, and to its trial."""

    async def look(client: Client) -> list[str]:
        found: list[str] = []
        for kind in (ValidatingWebhookConfiguration, MutatingWebhookConfiguration):
            items = [each async for each in client.list(kind)]
            found += [
                f"{kind.__name__} {each.metadata.name}"
                for each in items
                if "run-vaults" in each.metadata.name
            ]
        crd = await client.get(CustomResourceDefinition, f"vaults.{GROUP}")
        return [*found, crd.spec.get("conversion", {}).get("strategy", "None")]

    return kube_api.call(look)


@pytest.mark.usefixtures("vaults")
def test_the_webhooks_of_a_running_operator_are_called_at_once(
    kube_api: KubeApi, kube_operator: RunOperator, kube_namespace: str
) -> None:
    kube_operator(operator(small, painted, newer, older))
    made = kube_api.call(lambda client: client.create(vault("first", kube_namespace, 1)))
    assert made.spec.color == "gray"
    with pytest.raises(errors.Forbidden, match="too large"):
        kube_api.call(lambda client: client.create(vault("large", kube_namespace, 101)))
    old = kube_api.call(lambda client: client.get(OldVault, "first", kube_namespace))
    assert old.spec.gigabytes == 1
    with pytest.raises(errors.ApiError, match=r"failed calling webhook|internal error"):
        kube_api.call(lambda client: client.create(vault("odd", kube_namespace, 13)))


@pytest.mark.usefixtures("vaults")
def test_nothing_that_was_registered_is_left_when_the_operator_has_ended(kube_api: KubeApi) -> None:
    with running_operator(operator(small, painted, newer, older), kube_api.config, within=60):
        assert registered(kube_api) == [
            "ValidatingWebhookConfiguration run-vaults",
            "MutatingWebhookConfiguration run-vaults",
            "Webhook",
        ]
    assert registered(kube_api) == ["None"]


@pytest.mark.usefixtures("vaults")
def test_the_controllers_of_a_running_operator_work_also_of_one_that_has_to_be_elected(
    kube_api: KubeApi, kube_operator: RunOperator, kube_namespace: str
) -> None:
    kube_operator(operator(leader_election=LeaderElection("run-vaults", namespace=kube_namespace)))
    kube_api.call(lambda client: client.create(vault("one", kube_namespace, 7)))

    wanted = ConfigMap(metadata=ObjectMeta(name="one", namespace=kube_namespace))
    there = until.holds("there", lambda obj: obj.data == {"size": "7"})
    kube_api.call(lambda client: wait_for(client, wanted, there, timeout=30))


class Nowhere(KubeObject, group=GROUP, version="v1"): ...


async def nothing(ctx: Context, obj: KubeObject) -> None: ...


def test_an_operator_that_does_not_get_ready_says_why(kube_api: KubeApi) -> None:
    lost = Controller(name="lost", reconciler=nothing, primary=Nowhere)
    with (
        pytest.raises(Unprepared, match="not ready after 1 s: controller lost waits for Nowhere"),
        running_operator(Manager([lost]), kube_api.config, within=1),
    ):
        pytest.fail("it is not ready")


def test_only_a_manager_without_a_client_can_be_run(kube_api: KubeApi, kube_operator: RunOperator) -> None:
    with pytest.raises(ConfigurationError, match="created with a client"):
        kube_operator(Manager(client=kube_api.config))


def test_what_ends_an_operator_is_raised(kube_operator: RunOperator) -> None:
    async def fail() -> None:
        raise OSError("no database")

    idle = Controller(name="idle", reconciler=nothing, primary=Nowhere)
    with pytest.raises(OSError, match="no database"):
        kube_operator(Manager([idle], runnables=[Runnable("pool", fail)]))
