"""The controller `website`, row by row of its contract, on an API server in memory."""

from __future__ import annotations

from typing import Any

import pytest
from little_server import LittleServer, Run

from kubeshard.cache import CacheBehind
from kubeshard.core import Conflict, Forbidden, ObjectMeta, Unavailable
from kubeshard_lab.examples.webhosting.api import Theme, ThemeSpec, Website, WebsiteSpec
from kubeshard_lab.examples.webhosting.children import server_name
from kubeshard_lab.examples.webhosting.config import IngressConfig
from kubeshard_lab.examples.webhosting.controller import ThemeNotFound, WebsiteReconciler, website_controller
from kubeshard_lab.examples.webhosting.workload import Deployment, Ingress, IngressTLS, ServerFiles, Service

NAMESPACE = "project-foo"
DEFAULTS: dict[str, Any] = {
    "Service": {"spec": {"sessionAffinity": "None", "clusterIP": "10.0.0.1"}},
    "Deployment": {"spec": {"strategy": {"type": "RollingUpdate"}, "progressDeadlineSeconds": 600}},
}
AVAILABLE = {
    "observedGeneration": 1,
    "conditions": [
        {"type": "Available", "status": "True"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ],
}


class World:
    """A server with the theme `dark`, and the Website `homepage`."""

    def __init__(self, ingress: IngressConfig | None = None, theme: str = "dark", **meta: Any) -> None:
        self.server = LittleServer(DEFAULTS)
        self.server.has(
            Theme(metadata=ObjectMeta(name="dark"), spec=ThemeSpec(color="black", font_family="Menlo"))
        )
        self.server.has(
            Website(
                metadata=ObjectMeta(name="homepage", namespace=NAMESPACE, uid="1", **meta),
                spec=WebsiteSpec(theme=theme),
            )
        )
        self.run = Run(self.server, NAMESPACE)
        self._controller = website_controller(ingress)

    @property
    def website(self) -> Website:
        return self.server.find(Website, "homepage", NAMESPACE)

    @property
    def name(self) -> str:
        return server_name(self.website)

    def child(self, cls: type[Any]) -> Any:
        return self.server.find(cls, self.name, NAMESPACE)

    def raw(self, kind: str) -> dict[str, Any]:
        return self.server.objects[kind, NAMESPACE, self.name]

    def change(self, patch: dict[str, Any], cls: type[Any] = Website, name: str = "homepage") -> None:
        self.server.change(cls, name, NAMESPACE if cls.KIND.namespaced else "", patch)

    async def reconcile(self) -> list[tuple[str, str]]:
        """Returns the writes."""
        self.server.writes.clear()
        reconciler = self._controller.reconciler
        assert isinstance(reconciler, WebsiteReconciler)
        assert await reconciler.reconcile(self.run.context, self.website) is None
        return [(verb, kind) for verb, kind, _ in self.server.writes]


async def test_a_website_gets_its_objects_in_order_and_then_its_status() -> None:
    world = World()
    kinds = ("ConfigMap", "Service", "Ingress", "Deployment")
    assert await world.reconcile() == [*(("create", kind) for kind in kinds), ("patch", "Website")]
    assert world.name.startswith("homepage-")
    assert len(world.name) == len("homepage-") + 6
    for kind in kinds:
        (owner,) = world.raw(kind)["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "webhosting.timebertt.dev/v1alpha1",
            "kind": "Website",
            "name": "homepage",
            "uid": "1",
            "controller": True,
            "blockOwnerDeletion": True,
        }


async def test_phase_generation_and_time_are_written_once() -> None:
    world = World()
    await world.reconcile()
    assert world.website.status.phase == "Pending"
    assert world.website.status.observed_generation == world.website.metadata.generation == 1
    assert world.website.status.last_transition_time == "2026-01-02T03:04:05.250000Z"


async def test_a_reconcile_that_finds_nothing_to_do_sends_nothing() -> None:
    world = World(
        IngressConfig(annotations={"a": "b"}, hosts=("x.example.com",)), labels={"skip-workload": ""}
    )
    await world.reconcile()
    assert await world.reconcile() == []
    assert world.run.events == []


async def test_it_is_ready_when_its_deployment_is_and_pending_again_when_not() -> None:
    world = World()
    await world.reconcile()
    world.change({"status": AVAILABLE}, Deployment, world.name)
    assert await world.reconcile() == [("patch", "Website")]
    assert world.website.status.phase == "Ready"
    world.change({"status": {"observedGeneration": 0}}, Deployment, world.name)
    await world.reconcile()
    assert world.website.status.phase == "Pending"


async def test_a_changed_theme_rolls_the_deployment_out() -> None:
    world = World()
    await world.reconcile()
    before = world.child(Deployment).spec.template.metadata.annotations["checksum/configmap"]
    world.change({"spec": {"color": "white"}}, Theme, "dark")
    assert await world.reconcile() == [("patch", "ConfigMap"), ("patch", "Deployment")]
    assert "background-color: white" in world.child(ServerFiles).data["index.html"]
    assert world.child(Deployment).spec.template.metadata.annotations["checksum/configmap"] != before


async def test_children_have_the_websites_labels_but_its_shard_and_the_four_of_the_server() -> None:
    own = {"app": "mine", "team": "blue"}
    world = World(labels={"shard.alpha.sharding.timebertt.dev/webhosting-operator": "shard-1", **own})
    await world.reconcile()
    fixed = {
        "app": "website",
        "website": "homepage",
        "server": world.name,
        "managed-by": "webhosting-operator",
    }
    for kind in ("ConfigMap", "Service", "Ingress", "Deployment"):
        assert world.raw(kind)["metadata"]["labels"] == own | fixed
    deployment = world.child(Deployment)
    assert deployment.spec.selector.match_labels == deployment.spec.template.metadata.labels == fixed
    assert world.child(Service).spec.selector == fixed


async def test_foreign_labels_annotations_and_fields_are_kept() -> None:
    world = World(IngressConfig(annotations={"ours": "1"}))
    await world.reconcile()
    foreign = {"metadata": {"labels": {"team": "a"}, "annotations": {"theirs": "1"}}}
    for cls in (ServerFiles, Service, Ingress, Deployment):
        world.change(foreign, cls, world.name)
    world.change(
        {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}},
        Deployment,
        world.name,
    )
    assert await world.reconcile() == []
    world.change({"spec": {"color": "white"}}, Theme, "dark")
    await world.reconcile()
    template = world.child(Deployment).spec.template
    assert set(template.metadata.annotations) == {"kubectl.kubernetes.io/restartedAt", "checksum/configmap"}
    assert world.child(Ingress).metadata.annotations == {"ours": "1", "theirs": "1"}


async def test_a_child_that_somebody_changed_is_put_right() -> None:
    world = World()
    await world.reconcile()
    world.change({"data": {"index.html": "hacked", "nginx.conf": None, "more": "x"}}, ServerFiles, world.name)
    world.change({"spec": {"replicas": 5}}, Deployment, world.name)
    assert await world.reconcile() == [("patch", "ConfigMap"), ("patch", "Deployment")]
    assert set(world.child(ServerFiles).data) == {"index.html", "nginx.conf"}
    assert world.child(Deployment).spec.replicas == 1


async def test_skip_workload_takes_pods_and_ingress_away_and_its_removal_brings_them_back() -> None:
    world = World(labels={"skip-workload": "any"})
    await world.reconcile()
    assert world.child(Deployment).spec.replicas == 0
    assert world.child(Ingress).spec.ingress_class_name == "fake"
    world.change({"metadata": {"labels": {"skip-workload": None}}})
    await world.reconcile()
    assert world.child(Deployment).spec.replicas == 1
    assert "ingressClassName" not in world.raw("Ingress")["spec"]


async def test_an_ingress_class_that_others_chose_is_kept() -> None:
    world = World()
    await world.reconcile()
    world.change({"spec": {"ingressClassName": "nginx"}}, Ingress, world.name)
    assert await world.reconcile() == []


async def test_the_ingress_follows_the_configuration() -> None:
    tls = (IngressTLS(hosts=("a.example.com",), secret_name="cert"),)
    world = World(IngressConfig(hosts=("a.example.com", "b.example.com"), tls=tls))
    await world.reconcile()
    spec = world.raw("Ingress")["spec"]
    assert [rule["host"] for rule in spec["rules"]] == ["a.example.com", "b.example.com"]
    (path,) = spec["rules"][0]["http"]["paths"]
    assert path == {
        "path": "/project-foo/homepage",
        "pathType": "Prefix",
        "backend": {"service": {"name": world.name, "port": {"name": "http"}}},
    }
    assert spec["tls"] == [{"hosts": ["a.example.com"], "secretName": "cert"}]


async def test_without_hosts_there_is_one_rule_for_all() -> None:
    world = World()
    await world.reconcile()
    (rule,) = world.raw("Ingress")["spec"]["rules"]
    assert rule["host"] == ""
    assert world.raw("Ingress")["spec"]["tls"] == []


async def test_service_and_deployment_are_those_of_the_reference() -> None:
    world = World()
    await world.reconcile()
    service, deployment = world.raw("Service")["spec"], world.raw("Deployment")["spec"]
    assert service["type"] == "ClusterIP"
    assert service["ports"] == [{"name": "http", "port": 8080, "targetPort": "http", "protocol": "TCP"}]
    assert deployment["revisionHistoryLimit"] == 2
    (container,) = deployment["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("nginx", "nginx:1.29-alpine")
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["ports"] == [{"name": "http", "containerPort": 80, "protocol": "TCP"}]
    assert container["volumeMounts"] == [
        {"name": "website-data", "readOnly": True, "mountPath": "/usr/share/nginx/html"},
        {"name": "website-config", "readOnly": True, "mountPath": "/etc/nginx/conf.d"},
    ]
    assert [
        (volume["name"], volume["configMap"]["items"], volume["configMap"]["defaultMode"])
        for volume in deployment["template"]["spec"]["volumes"]
    ] == [
        ("website-data", [{"key": "index.html", "path": "index.html"}], 0o644),
        ("website-config", [{"key": "nginx.conf", "path": "nginx.conf"}], 0o644),
    ]


async def test_a_website_that_is_being_deleted_is_terminating_and_left_alone() -> None:
    world = World(deletion_timestamp="2026-01-01T00:00:00Z", finalizers=("foregroundDeletion",))
    assert await world.reconcile() == [("patch", "Website")]
    assert world.website.status.phase == "Terminating"


async def test_without_a_theme_it_is_in_error_and_not_retried() -> None:
    world = World(theme="")
    assert await world.reconcile() == [("patch", "Website")]
    assert world.website.status.phase == "Error"
    assert world.run.events == [("Warning", "ThemeUnspecified", "Website doesn't specify a Theme")]


async def test_a_theme_that_does_not_exist_is_an_error_that_heals() -> None:
    world = World(theme="light")
    with pytest.raises(ThemeNotFound, match="Theme light not found"):
        await world.reconcile()
    assert world.run.events == [("Warning", "ThemeNotFound", "Theme light not found")]
    assert world.website.status.phase == "Error"
    world.server.has(Theme(metadata=ObjectMeta(name="light")))
    await world.reconcile()
    assert world.website.status.phase == "Pending"


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "Ingress", "Deployment"])
async def test_a_child_that_cannot_be_written_is_named_in_an_event(kind: str) -> None:
    world = World()
    world.server.refuses[kind] = Forbidden("not you", code=403)
    with pytest.raises(Forbidden):
        await world.reconcile()
    assert world.run.events == [("Warning", "ReconcilerError", f"Error reconciling {kind}: not you")]
    assert world.website.status.phase == "Error"


async def test_a_theme_that_cannot_be_read_is_named_in_an_event() -> None:
    world = World()
    world.run.unreadable[Theme] = Unavailable("no answer")
    with pytest.raises(Unavailable):
        await world.reconcile()
    assert world.run.events == [("Warning", "ReconcilerError", "Error getting Theme dark: no answer")]


@pytest.mark.parametrize("stale", [Conflict("changed", code=409), CacheBehind("behind")])
async def test_stale_reads_are_no_error_of_the_website(stale: Exception) -> None:
    """A8 in docs/defects.md."""
    world = World()
    world.server.refuses["Service"] = stale
    with pytest.raises(type(stale)):
        await world.reconcile()
    assert world.run.events == []
    assert world.website.status.phase == ""


async def test_a_failure_that_cannot_be_reported_is_not_lost() -> None:
    world = World()
    world.server.refuses |= {"Service": Forbidden("not you", code=403), "Website": Unavailable("no answer")}
    with pytest.raises(ExceptionGroup) as caught:
        await world.reconcile()
    assert [type(error) for error in caught.value.exceptions] == [Forbidden, Unavailable]
