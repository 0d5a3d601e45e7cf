"""Discovery, version, health, and paths that lead nowhere."""

import json
from importlib.resources import files

import pytest
from conformance_kinds import site

pytestmark = pytest.mark.wire

TOLD = json.loads((files("kubeshard_apiserver.schema") / "kinds.json").read_text())
"""The resources of every group version that is served here, as release 1.37.2 reports them."""


async def test_the_core_group_has_version_v1(api):
    found = await api.get("/api")
    assert (found["kind"], found["versions"]) == ("APIVersions", ["v1"])


async def test_groups_are_listed_with_their_versions(api):
    found = await api.get("/apis")
    assert found["kind"] == "APIGroupList"
    groups = {group["name"]: group for group in found["groups"]}
    assert groups["coordination.k8s.io"]["preferredVersion"] == {
        "groupVersion": "coordination.k8s.io/v1",
        "version": "v1",
    }


async def test_a_group_has_a_document_of_its_own(api):
    assert (await api.get("/apis/coordination.k8s.io")).body == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "coordination.k8s.io",
        "versions": [{"groupVersion": "coordination.k8s.io/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "coordination.k8s.io/v1", "version": "v1"},
    }


KINDS = {
    "/api/v1": {
        "namespaces": ("Namespace", False, ["ns"]),
        "configmaps": ("ConfigMap", True, ["cm"]),
        "secrets": ("Secret", True, None),
        "pods": ("Pod", True, ["po"]),
        "services": ("Service", True, ["svc"]),
        "endpoints": ("Endpoints", True, ["ep"]),
        "serviceaccounts": ("ServiceAccount", True, ["sa"]),
        "persistentvolumeclaims": ("PersistentVolumeClaim", True, ["pvc"]),
        "persistentvolumes": ("PersistentVolume", False, ["pv"]),
        "resourcequotas": ("ResourceQuota", True, ["quota"]),
        "limitranges": ("LimitRange", True, ["limits"]),
        "nodes": ("Node", False, ["no"]),
        "events": ("Event", True, ["ev"]),
    },
    "/apis/coordination.k8s.io/v1": {"leases": ("Lease", True, None)},
    "/apis/apps/v1": {
        "deployments": ("Deployment", True, ["deploy"]),
        "replicasets": ("ReplicaSet", True, ["rs"]),
        "statefulsets": ("StatefulSet", True, ["sts"]),
        "daemonsets": ("DaemonSet", True, ["ds"]),
        "controllerrevisions": ("ControllerRevision", True, None),
    },
    "/apis/batch/v1": {"jobs": ("Job", True, None), "cronjobs": ("CronJob", True, ["cj"])},
    "/apis/networking.k8s.io/v1": {
        "ingresses": ("Ingress", True, ["ing"]),
        "networkpolicies": ("NetworkPolicy", True, ["netpol"]),
        "ingressclasses": ("IngressClass", False, None),
    },
    "/apis/rbac.authorization.k8s.io/v1": {
        "roles": ("Role", True, None),
        "clusterroles": ("ClusterRole", False, None),
        "rolebindings": ("RoleBinding", True, None),
        "clusterrolebindings": ("ClusterRoleBinding", False, None),
    },
    "/apis/policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", True, ["pdb"])},
    "/apis/autoscaling/v2": {"horizontalpodautoscalers": ("HorizontalPodAutoscaler", True, ["hpa"])},
    "/apis/discovery.k8s.io/v1": {"endpointslices": ("EndpointSlice", True, None)},
    "/apis/events.k8s.io/v1": {"events": ("Event", True, ["ev"])},
    "/apis/storage.k8s.io/v1": {"storageclasses": ("StorageClass", False, ["sc"])},
    "/apis/apiextensions.k8s.io/v1": {
        "customresourcedefinitions": ("CustomResourceDefinition", False, ["crd", "crds"])
    },
}


@pytest.mark.parametrize("path", KINDS)
async def test_kinds_have_their_names_and_scope(api, path):
    resources = {entry["name"]: entry for entry in (await api.get(path))["resources"]}
    found = {
        name: (resources[name]["kind"], resources[name]["namespaced"], resources[name].get("shortNames"))
        for name in KINDS[path]
    }
    assert found == KINDS[path]


@pytest.mark.parametrize("path", KINDS)
async def test_kinds_have_their_singular_names_categories_and_verbs(api, path):
    resources = {entry["name"]: entry for entry in (await api.get(path))["resources"]}
    for name in KINDS[path]:
        entry = resources[name]
        assert entry["singularName"] == entry["kind"].lower()
        assert entry.get("categories", []) == CATEGORIES.get(name, [])
        assert set(entry["verbs"]) == VERBS - NOT_AS_COLLECTION.get(name, set())
        assert (f"{name}/status" in resources) == (name in WITH_STATUS)


VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
NOT_AS_COLLECTION = {
    "namespaces": {"deletecollection"},
}
CATEGORIES = {
    "customresourcedefinitions": ["api-extensions"],
    **{
        name: ["all"]
        for name in (
            "pods", "services", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs",
            "horizontalpodautoscalers",
        )
    },
}  # fmt: skip
WITH_STATUS = {
    "namespaces", "pods", "services", "persistentvolumeclaims", "persistentvolumes", "resourcequotas", "nodes",
    "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs", "ingresses",
    "poddisruptionbudgets", "horizontalpodautoscalers", "customresourcedefinitions",
}  # fmt: skip


@pytest.mark.parametrize("group_version", TOLD)
async def test_the_document_of_a_version_is_the_whole_truth(api, group_version):
    path = f"/apis/{group_version}" if "/" in group_version else "/api/v1"
    document = (await api.get(path)).body
    entries = [
        {name: value for name, value in entry.items() if name != "type"} for entry in TOLD[group_version]
    ]
    head = {"kind": "APIResourceList", "groupVersion": group_version}
    head |= {"apiVersion": "v1"} if "/" in group_version else {}
    assert document == {**head, "resources": entries}


async def test_groups_are_in_the_order_of_the_server(api):
    ours = list(dict.fromkeys(version.partition("/")[0] for version in TOLD if "/" in version))
    listed = [group["name"] for group in (await api.get("/apis"))["groups"]]
    assert [group for group in listed if group in ours] == ours


async def test_the_release_is_named(api):
    assert (await api.get("/version"))["gitVersion"] == "v1.37.2"


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz"])
async def test_the_server_is_well(api, path):
    answer = await api.get(path)
    assert (answer.status, answer.text) == (200, "ok")


@pytest.mark.parametrize("path", ["/apis/nope.example.com/v1/x", "/apis/nope.example.com", "/nope"])
async def test_an_unknown_group_is_a_page_that_is_not_found(api, path):
    answer = await api.get(path)
    assert (answer.status, answer.text) == (404, "404 page not found\n")
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    "path", ["/api/v1/nope", "/api/v1/namespaces/default/nope", "/apis/apps/v1/nope/x", "/apis/apps/v9/x"]
)
async def test_an_unknown_kind_of_a_known_group_is_not_found(api, path):
    answer = await api.get(path)
    assert answer.refusal == (404, "NotFound")
    assert answer.message == "the server could not find the requested resource"


@pytest.mark.parametrize("path", ["v1/nope", "v9/sites", "v1/namespaces/default/nope"])
async def test_an_unknown_kind_of_a_custom_group_is_a_page_that_is_not_found(api, sites, path):
    answer = await api.get(f"/apis/conformance.example.com/{path}")
    assert (answer.status, answer.text) == (404, "404 page not found\n")


async def test_an_unknown_subresource_is_not_found(api, sites):
    await api.create(sites, site())
    assert (await api.get(f"{sites}/a/nope")).status == 404
