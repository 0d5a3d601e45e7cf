"""An operator's objects follow from what its manager declares."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kubeshard import ConfigMap, Context, Controller, KubeObject, LeaderElection, Manager, Sharding, Watch
from kubeshard.cli.loading import load_manager
from kubeshard.core.errors import ConfigurationError
from kubeshard.crd import CustomResource
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.ring import is_ring, ring_objects
from kubeshard.manifests.values import OperatorValues, chosen
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import DELIVERY_ANNOTATION
from kubeshard.webhook import Webhooks, converts, validates
from kubeshard_apiserver.testing import MemoryApi
from kubeshard_lab.examples import webhosting
from kubeshard_lab.examples.checksum import operator as checksum
from kubeshard_lab.examples.webhosting import manifests


@CustomResource()
class Page(KubeObject, group="pages.example.com", version="v1"):
    title: str = ""


class Borrowed(KubeObject, group="others.example.com", version="v1"):
    """A kind of another project: it is not marked, so its definition is not part of the operator's objects."""


async def reconcile(ctx: Context, page: Page) -> None: ...


@validates(Page)
def titled(page: Page) -> None: ...


def manager(**more: Any) -> Manager:
    controller = Controller(name="pages", reconciler=reconcile, primary=Page, owns=[ConfigMap, Borrowed])
    return Manager([controller], **more)


def made(manager: Manager, *settings: str) -> dict[tuple[str, str], Any]:
    """Returns the objects by kind and name."""
    values = chosen(OperatorValues, None, ["image=example.com/pages:v1", *settings])
    objects = operator_objects(manager, "my_pages:manager", "pages", values)
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def test_an_operator_has_its_own_definitions_rights_and_services() -> None:
    webhooks = Webhooks("pages", [titled], port=9443)
    found = made(manager(leader_election=LeaderElection(name="pages"), servers=[webhooks]))
    assert {name for kind, name in found if kind == "CustomResourceDefinition"} == {"pages.pages.example.com"}
    assert ("ClusterRole", "pages") in found
    assert found["RoleBinding", "pages"]["subjects"] == [
        {"kind": "ServiceAccount", "namespace": "pages", "name": "pages"}
    ]
    assert found["Service", "pages"]["spec"]["ports"][0] | {"protocol": "TCP"} == {
        "name": "webhook",
        "port": 443,
        "protocol": "TCP",
        "targetPort": "webhook",
    }
    spec = found["Deployment", "pages"]["spec"]
    assert spec["replicas"] == 2
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"] + container["args"] == [
        *("kubeshard", "run", "my_pages:manager", "--log-format=json", "--log-level=info")
    ]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {
        "health": 8081,
        "metrics": 8080,
        "webhook": 9443,
    }


def test_webhooks_of_another_namespace_than_that_of_the_manifests_are_refused() -> None:
    """Their Service is in that of the manifests."""
    elsewhere = manager(servers=[Webhooks("pages", [titled], namespace="web")])
    with pytest.raises(
        ConfigurationError, match=r"called in namespace web.* are for pages: .* value namespace=web"
    ):
        made(elsewhere)
    assert ("Service", "pages") in made(elsewhere, "namespace=web")


def test_an_operator_that_takes_no_turns_runs_alone_and_never_twice() -> None:
    found = made(manager())
    spec = found["Deployment", "pages"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert not [kind for kind, _ in found if kind == "PodDisruptionBudget"]
    with pytest.raises(ConfigurationError, match="leader_election= or sharding="):
        made(manager(), "replicas=2")
    assert (
        made(manager(sharding=Sharding("pages")), "replicas=5")["Deployment", "pages"]["spec"]["replicas"]
        == 5
    )


def test_an_operator_without_pages_has_no_probes_and_nothing_to_scrape() -> None:
    silent = manager(status_pages=None)
    (container,) = made(silent)["Deployment", "pages"]["spec"]["template"]["spec"]["containers"]
    assert not {"livenessProbe", "readinessProbe"} & container.keys()
    with pytest.raises(ConfigurationError, match="metrics_address"):
        made(silent, "serviceMonitor.enabled=true")


def test_an_operator_that_serves_nothing_is_reached_by_nobody() -> None:
    found = made(manager(status_pages=None), "networkPolicy.enabled=true")
    spec = found["NetworkPolicy", "pages"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == []


@CustomResource(storage=True)
class Sheet(KubeObject, group="pages.example.com", version="v2"):
    heading: str = ""


@CustomResource()
class SheetV1(KubeObject, group="pages.example.com", version="v1", kind="Sheet"):
    title: str = ""


@converts(SheetV1, Sheet)
def up(old: SheetV1) -> Sheet:
    return Sheet(heading=old.title)


@converts(Sheet, SheetV1)
def down(new: Sheet) -> SheetV1:
    return SheetV1(title=new.heading)


def test_a_definition_has_the_conversion_that_the_operator_declares_but_for_its_authority() -> None:
    """Without it, objects that are created before the operator registers would lose the fields of their version."""
    sheets = Controller(name="sheets", reconciler=reconcile, primary=Sheet)  # type: ignore[arg-type]
    for webhooks, namespace in (
        (Webhooks("pages", [up, down]), "pages"),
        (Webhooks("pages", [up, down], namespace="elsewhere"), "elsewhere"),
    ):
        found = made(Manager([sheets], servers=[webhooks]), f"namespace={namespace}")
        service = {
            "namespace": namespace,
            "name": "pages",
            "path": "/convert/sheet.pages.example.com",
            "port": 443,
        }
        assert found["CustomResourceDefinition", "sheets.pages.example.com"]["spec"]["conversion"] == {
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]},
        }
    injected = Webhooks("pages", [up, down], annotations={"cert-manager.io/inject-ca-from": "a/b"})
    found = made(Manager([sheets], servers=[injected]))
    metadata = found["CustomResourceDefinition", "sheets.pages.example.com"]["metadata"]
    assert metadata["annotations"]["cert-manager.io/inject-ca-from"] == "a/b"


async def test_an_api_server_takes_what_is_made_of_an_operator(kube_memory: MemoryApi) -> None:
    found = made(manager(leader_election=LeaderElection(name="pages")), "networkPolicy.enabled=true")
    await kube_memory.install(*found.values())
    async with kube_memory.client() as client:
        assert await client.raw("GET", "/apis/apps/v1/namespaces/pages/deployments/pages")


SECRETS = {"group": "", "resource": "secrets"}


@pytest.mark.parametrize(
    ("spec", "delivery", "says"),
    [
        ({}, "", "shards nothing"),
        ({"resources": [{"group": "", "resource": "events"}]}, "", "cannot be sharded"),
        ({"resources": "all"}, "", "not a ControllerRing"),
        ({"resources": [SECRETS]}, "ranges", "'ranges': write Ranges"),
        ({"resources": [SECRETS]}, "Ranges", "in which one namespace the shards are"),
    ],
)
def test_a_ring_that_cannot_work_is_refused(spec: Any, delivery: str, says: str) -> None:
    ring = {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": "r", "annotations": {DELIVERY_ANNOTATION: delivery}},
        "spec": spec,
    }
    with pytest.raises(ConfigurationError, match=says):
        list(ring_objects(ring, ("sharding-system", "sharder")))


def test_the_sharder_gets_the_assignment_where_the_accounts_of_the_shards_are() -> None:
    ring = {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": "r", "annotations": {DELIVERY_ANNOTATION: "Ranges"}},
        "spec": {"resources": [SECRETS]},
    }
    made = list(ring_objects(ring, ("sharding-system", "sharder"), shards=[("web", "shard")]))
    assert "web" in {each["metadata"].get("namespace") for each in made if each["kind"] == "Role"}


def test_the_ring_that_watches_declare_comes_with_the_sharders_role_and_policies() -> None:
    shard = manager(sharding=Sharding("pages"))
    with pytest.raises(ConfigurationError, match="value ring: the manager declares none"):
        made(shard, "ring.enabled=true")
    controller = Controller(name="pages", reconciler=reconcile, primary=Watch(Page, sharded=True))
    shard = Manager([controller], sharding=Sharding("pages"))
    found = made(
        shard, "ring.enabled=true", "ring.policies=true", "ring.sharderNamespace=a", "ring.sharderName=b"
    )
    (resource,) = found["ControllerRing", "pages"]["spec"]["resources"]
    assert (resource["group"], resource["resource"]) == ("pages.example.com", "pages")
    bound = found["ClusterRoleBinding", "sharding:controllerring:pages"]["subjects"]
    assert bound == [{"kind": "ServiceAccount", "namespace": "a", "name": "b"}]
    assert ("ValidatingAdmissionPolicy", "sharding-pages-fence") in found


@pytest.mark.parametrize("confined", [[], ["default"], ["default", "other"]])
def test_a_shard_has_rights_on_objects_in_the_namespaces_that_its_program_reads_only(
    confined: list[str],
) -> None:
    """The example reads the Secrets of one namespace, whatever the values narrow it to."""
    values = {"image": "a/b:c", "namespace": "shards", "ring": {"enabled": True}, "watchNamespaces": confined}
    objects = operator_objects(checksum.manager(), "checksum", "checksum", chosen(OperatorValues, values))
    own = [each for each in objects if each["metadata"]["name"] == "checksum"]
    rights = {
        (each["metadata"].get("namespace"), resource, verb)
        for each in own
        if each["kind"] in ("ClusterRole", "Role")
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {(place, resource) for place, resource, _ in rights} == {
        (None, "controllerrings"),
        *(("default", resource) for resource in ("configmaps", "secrets", "secrets/finalizers", "events")),
        *(("shards", resource) for resource in ("leases", "events")),
    }
    assert {verb for _, resource, verb in rights if resource == "configmaps"} == {
        *("get", "list", "watch", "patch", "create")
    }


def test_dashboards_are_those_of_operators_and_the_authors_own() -> None:
    values = chosen(
        OperatorValues, None, ["image=a/b:c", "dashboards.enabled=true", "dashboards.labels={team: web}"]
    )
    objects = operator_objects(manager(), "my_pages", "pages", values, {"pages-mine": {"title": "Pages"}})
    maps = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ConfigMap"}
    assert maps.keys() == {"pages-dashboard", "pages-mine"}
    assert json.loads(maps["pages-mine"]["data"]["pages-mine.json"]) == {"title": "Pages"}
    for each in maps.values():
        assert each["metadata"]["labels"].items() >= {"grafana_dashboard": "1", "team": "web"}.items()


@pytest.mark.parametrize(
    ("target", "ring"),
    [
        ("kubeshard_lab.examples.webhosting.operator", "webhosting-operator"),
        ("kubeshard_lab.examples.checksum.operator", "checksum-controller"),
    ],
)
async def test_the_examples_can_be_installed_with_ring_roles_and_dashboards(target: str, ring: str) -> None:
    settings = ["image=a/b:c", *(f"{each}.enabled=true" for each in ("ring", "dashboards"))]
    values = chosen(OperatorValues, None, settings)
    api = MemoryApi()
    await api.install(controller_ring_crd(), *operator_objects(load_manager(target), target, ring, values))
    async with api.client() as client:
        seen = await client.get(ControllerRing, ring)
        assert seen.spec.resources
        maps = [each.metadata.name async for each in client.list(ConfigMap, ring)]
        assert f"{ring}-dashboard" in maps


def test_the_declared_ring_of_the_example_is_the_one_that_its_samples_have() -> None:
    values = chosen(OperatorValues, None, ["image=a/b:c", "ring.enabled=true"])
    objects = operator_objects(webhosting.operator.manager(), "a", webhosting.api.RING, values)
    (declared,) = (msgspec.convert(each, ControllerRing) for each in objects if is_ring(each))
    sample = msgspec.convert(next(manifests.ring()), ControllerRing)
    assert sample.spec.namespace_selector == declared.spec.namespace_selector
    assert _resources(sample) == _resources(declared)


def _resources(ring: ControllerRing) -> dict[tuple[str, str], set[tuple[str, str]]]:
    return {
        (main.group, main.resource): {(each.group, each.resource) for each in main.controlled_resources}
        for main in ring.spec.resources
    }
