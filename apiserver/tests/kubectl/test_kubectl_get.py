"""kubectl get, describe and events, and how kubectl discovers the server."""

from __future__ import annotations

import json

import yaml
from kubectl_manifests import config_map, gizmo


def test_version_and_cluster_info(kubectl):
    assert kubectl.json("version")["serverVersion"]["gitVersion"] == "v1.37.2"
    assert "Kubernetes control plane" in kubectl("cluster-info")


def test_api_resources_and_versions(gizmos):
    lines = gizmos.rows("api-resources --api-group=apps")
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in lines
    assert ["gizmos", "gz", "kubectl.example.com/v1", "true", "Gizmo"] in gizmos.rows("api-resources")
    assert {"v1", "apps/v1", "autoscaling/v2", "kubectl.example.com/v1"} <= set(
        gizmos("api-versions").split()
    )
    assert "deployments.apps" in gizmos("api-resources --verbs=list,watch --namespaced -o name").split()


def test_a_table(kubectl):
    kubectl("create -f -", given=config_map(data={"a": "1", "b": "2"}))
    assert kubectl.rows("get configmap a") == [["NAME", "DATA", "AGE"], ["a", "2", "AGE"]]


def test_a_wide_table(gizmos):
    gizmos("create -f -", given=gizmo(replicas=3))
    assert gizmos.rows("get gz") == [["NAME", "SIZE"], ["a", "3"]]
    assert gizmos.rows("get gz -o wide") == [["NAME", "SIZE", "COLOR"], ["a", "3", "red"]]


def test_nothing_is_found(kubectl):
    assert kubectl("get secrets") == ""
    assert kubectl.refused("get secret a") == 'Error from server (NotFound): secrets "a" not found'
    assert kubectl.refused("get nonsense") == 'error: the server doesn\'t have a resource type "nonsense"'


def test_other_outputs(kubectl):
    kubectl("create -f -", given=config_map(labels={"l": "x"}))
    assert kubectl("get configmap a -o name") == "configmap/a\n"
    assert kubectl("get configmap a -o jsonpath={.data.k}") == "v"
    assert kubectl("get configmaps -o jsonpath={.items[?(@.metadata.name==\\'a\\')].data.k}") == "v"
    assert yaml.safe_load(kubectl("get configmap a -o yaml"))["data"] == {"k": "v"}
    assert kubectl.json("get configmap a")["metadata"]["labels"] == {"l": "x"}
    assert kubectl("get configmap a -o go-template={{.data.k}}") == "v"
    rows = kubectl.rows("get configmap a -o custom-columns=N:.metadata.name,V:.data.k")
    assert rows == [["N", "V"], ["a", "v"]]
    assert kubectl.rows("get configmap a --show-labels -L l")[1] == ["a", "1", "AGE", "x", "l=x"]
    assert kubectl("get configmap a --no-headers").split()[:2] == ["a", "1"]


def test_selections(kubectl):
    for name, label in ("a", "x"), ("b", "y"):
        kubectl("create -f -", given=config_map(name, labels={"l": label}))
    assert kubectl("get configmaps -l l=x -o name") == "configmap/a\n"
    assert kubectl("get configmaps -l", "l in (y,z)", "-o", "name") == "configmap/b\n"
    assert kubectl("get configmaps --field-selector metadata.name=b -o name") == "configmap/b\n"
    assert '"data.k" is not a known field selector' in kubectl.refused(
        "get configmaps --field-selector data.k=v"
    )


def test_all_namespaces(kubectl):
    kubectl("create -f -", given=config_map())
    rows = kubectl.rows("get configmaps -A")
    assert rows[0] == ["NAMESPACE", "NAME", "DATA", "AGE"]
    assert [kubectl.namespace, "a", "1", "AGE"] in rows


def test_several_kinds_and_all(kubectl):
    kubectl("create -f -", given=config_map())
    kubectl("create secret generic s --from-literal=a=b")
    assert kubectl("get configmap/a secret/s -o name") == "configmap/a\nsecret/s\n"
    kubectl("create service clusterip web --tcp=80")
    assert "service/web" in kubectl("get all -o name")


def test_chunks(kubectl):
    for name in "abcde":
        kubectl("create -f -", given=config_map(name))
    rows = kubectl.rows("get configmaps --chunk-size=2")
    assert {"a", "b", "c", "d", "e"} <= {row[0] for row in rows}


def test_sorting(kubectl):
    for name, value in ("a", "2"), ("b", "1"):
        kubectl("create -f -", given=config_map(name, {"k": value}, labels={"mine": "1"}))
    assert kubectl("get configmaps -l mine --sort-by=.data.k -o name") == "configmap/b\nconfigmap/a\n"


def test_watch(kubectl):
    kubectl("create -f -", given=config_map(labels={"mine": "1"}))
    with kubectl.start("get configmaps -l mine --watch --output-watch-events") as process:
        assert process.stdout.readline().split() == ["EVENT", "NAME", "DATA", "AGE"]
        assert process.stdout.readline().split()[:3] == ["ADDED", "a", "1"]
        kubectl("patch configmap a -p", json.dumps({"data": {"j": "w"}}))
        assert process.stdout.readline().split()[:3] == ["MODIFIED", "a", "2"]
        kubectl("delete configmap a")
        assert process.stdout.readline().split()[:3] == ["DELETED", "a", "2"]
        process.kill()


def test_raw(kubectl):
    assert json.loads(kubectl("get --raw /apis/apps"))["kind"] == "APIGroup"
    assert kubectl("get --raw /readyz") == "ok"


def test_describe(kubectl):
    kubectl("create -f -", given=config_map(annotations={"x": "y"}))
    assert kubectl("describe configmap a").split("\n") == [
        "Name:         a",
        f"Namespace:    {kubectl.namespace}",
        "Labels:       <none>",
        "Annotations:  x: y",
        "",
        "Data",
        "====",
        "k:",
        "----",
        "v",
        "",
        "",
        "BinaryData",
        "====",
        "",
        "Events:  <none>",
        "",
    ]


def test_describe_a_custom_resource(gizmos):
    gizmos("create -f -", given=gizmo())
    described = gizmos("describe gizmo a")
    assert "Kind:         Gizmo" in described
    assert "  Color:  red" in described


def test_events(kubectl):
    kubectl(
        "create -f -",
        given={
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e", "namespace": kubectl.namespace},
            "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": kubectl.namespace},
            "type": "Warning",
            "reason": "Broken",
            "message": "It broke.",
            "source": {"component": "test"},
            "firstTimestamp": "2001-02-03T04:05:06Z",
            "lastTimestamp": "2001-02-03T04:05:06Z",
            "count": 2,
        },
    )
    assert kubectl.rows("get events")[1][1:] == ["Warning", "Broken", "configmap/a", "It broke."]
    assert kubectl.rows("events")[1][1:] == ["Warning", "Broken", "ConfigMap/a", "It broke."]
    assert kubectl("events --for configmap/a --types=Normal") == ""


def test_top_says_that_there_are_no_metrics(kubectl):
    assert kubectl.refused("top pods") == "error: Metrics API not available"
