"""kubectl create, apply, diff, edit, patch, label, annotate, replace, delete, wait."""

from __future__ import annotations

import json
import stat

import pytest
from click.testing import CliRunner
from kubectl_manifests import config_map, gizmo

from kubeshard_lab.examples.webhosting.__main__ import webhosting


def test_create(kubectl):
    assert kubectl("create -f -", given=config_map()) == "configmap/a created\n"
    assert kubectl.refused("create -f -", given=config_map()) == (
        'Error from server (AlreadyExists): error when creating "STDIN": configmaps "a" already exists'
    )


def test_create_with_a_mistake(kubectl):
    assert kubectl.refused("create -f -", given={**config_map(), "dta": {}}) == (
        'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be handled '
        'as a ConfigMap: strict decoding error: unknown field "dta"'
    )
    assert "configmap/a created" in kubectl(
        "create --validate=ignore -f -", given={**config_map(), "dta": {}}
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("configmap a --from-literal=k=v", "configmap/a"),
        ("secret generic a --from-literal=k=v", "secret/a"),
        ("secret docker-registry a --docker-username=u --docker-password=p", "secret/a"),
        ("serviceaccount a", "serviceaccount/a"),
        ("role a --verb=get --resource=pods", "role.rbac.authorization.k8s.io/a"),
        ("rolebinding a --clusterrole=view --user=u", "rolebinding.rbac.authorization.k8s.io/a"),
        ("deployment a --image=i --replicas=2 --port=80", "deployment.apps/a"),
        ("job a --image=i -- true", "job.batch/a"),
        ("cronjob a --image=i --schedule=@hourly", "cronjob.batch/a"),
        ("service clusterip a --tcp=80:8080", "service/a"),
        ("service nodeport b --tcp=80", "service/b"),
        ("service externalname c --external-name=x.example.com", "service/c"),
        ("ingress a --rule=x.example.com/=s:80", "ingress.networking.k8s.io/a"),
        ("quota a --hard=pods=3", "resourcequota/a"),
        ("poddisruptionbudget a --selector=app=x --min-available=1", "poddisruptionbudget.policy/a"),
    ],
)
def test_generators(kubectl, line, name):
    assert kubectl(f"create {line}") == f"{name} created\n"
    assert kubectl(f"get {name} -o name") == f"{name}\n"


def test_a_dry_run_keeps_nothing(kubectl):
    assert "created (server dry run)" in kubectl("create configmap a --from-literal=k=v --dry-run=server")
    assert kubectl("get configmap a --ignore-not-found") == ""


def test_apply(kubectl):
    assert kubectl("apply -f -", given=config_map()) == "configmap/a created\n"
    assert kubectl("apply -f -", given=config_map()) == "configmap/a unchanged\n"
    assert kubectl("apply -f -", given=config_map(data={"j": "w"})) == "configmap/a configured\n"
    assert kubectl.json("get configmap a")["data"] == {"j": "w"}


def test_apply_merges_lists_by_their_keys(kubectl):
    def deployment(**container):
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "a"},
            "spec": {
                "selector": {"matchLabels": {"app": "a"}},
                "template": {
                    "metadata": {"labels": {"app": "a"}},
                    "spec": {"containers": [{"name": "c", "image": "i", **container}]},
                },
            },
        }

    kubectl("apply -f -", given=deployment(env=[{"name": "A", "value": "1"}]))
    kubectl("set env deployment/a B=2")
    kubectl("apply -f -", given=deployment(env=[{"name": "A", "value": "3"}]))
    (container,) = kubectl.json("get deployment a")["spec"]["template"]["spec"]["containers"]
    assert {entry["name"]: entry["value"] for entry in container["env"]} == {"A": "3", "B": "2"}
    kubectl("apply -f -", given=deployment())
    (container,) = kubectl.json("get deployment a")["spec"]["template"]["spec"]["containers"]
    assert "env" not in container


def test_apply_of_a_custom_resource(gizmos):
    assert gizmos("apply -f -", given=gizmo()) == "gizmo.kubectl.example.com/a created\n"
    assert gizmos("apply -f -", given=gizmo()) == "gizmo.kubectl.example.com/a unchanged\n"
    assert gizmos("apply -f -", given=gizmo(replicas=2)) == "gizmo.kubectl.example.com/a configured\n"


def test_apply_prunes(kubectl):
    folder = kubectl.folder / "manifests"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.json").write_text(json.dumps(config_map(name, labels={"mine": "1"})))
    kubectl(f"apply -f {folder} --prune -l mine=1")
    (folder / "b.json").unlink()
    assert "configmap/b pruned" in kubectl(f"apply -f {folder} --prune -l mine=1")


def test_server_side_apply(kubectl):
    assert kubectl("apply --server-side -f -", given=config_map()) == "configmap/a serverside-applied\n"
    kubectl("apply --server-side --field-manager=other -f -", given=config_map(data={"j": "w"}))
    refused = kubectl.refused(
        "apply --server-side --field-manager=third -f -", given=config_map(data={"k": "x"})
    )
    assert 'conflict with "kubectl": .data.k' in refused
    kubectl(
        "apply --server-side --field-manager=third --force-conflicts -f -",
        given=config_map(data={"k": "x"}),
    )
    assert kubectl.json("get configmap a")["data"] == {"k": "x", "j": "w"}
    managers = kubectl.json("get configmap a --show-managed-fields")["metadata"]["managedFields"]
    assert {entry["manager"] for entry in managers} == {"other", "third"}


def test_diff(kubectl):
    kubectl("apply -f -", given=config_map())
    assert kubectl("diff -f -", given=config_map()) == ""
    for how in "", " --server-side":
        done = kubectl.run(f"diff -f -{how}", given=config_map(data={"k": "w"}))
        assert done.returncode == 1, done.stderr
        assert "-  k: v\n+  k: w\n" in done.stdout


def test_edit(kubectl):
    kubectl("create -f -", given=config_map())
    editor = kubectl.folder / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/k: v/k: w/' \"$1\"\n")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    assert kubectl("edit configmap a", KUBE_EDITOR=str(editor)) == "configmap/a edited\n"
    assert kubectl.json("get configmap a")["data"] == {"k": "w"}


def test_patches(kubectl):
    kubectl("create deployment a --image=i --replicas=0")
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "j"}]
    kubectl("patch deployment a --type=json -p", json.dumps(image))
    kubectl("patch deployment a --type=merge -p", json.dumps({"spec": {"paused": True}}))
    strategic = {"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "k"}]}}}}
    assert kubectl("patch deployment a -p", json.dumps(strategic)) == "deployment.apps/a patched\n"
    assert (
        kubectl("patch deployment a -p", json.dumps(strategic)) == "deployment.apps/a patched (no change)\n"
    )
    spec = kubectl.json("get deployment a")["spec"]
    assert spec["paused"] is True
    assert [one["image"] for one in spec["template"]["spec"]["containers"]] == ["k", "j"]
    status = {"status": {"observedGeneration": 7}}
    kubectl("patch deployment a --subresource=status --type=merge -p", json.dumps(status))


def test_label_and_annotate(kubectl):
    kubectl("create -f -", given=config_map())
    assert kubectl("label configmap a l=x") == "configmap/a labeled\n"
    assert kubectl.refused("label configmap a l=y") == (
        "error: 'l' already has a value (x), and --overwrite is false"
    )
    assert kubectl("label configmap a l=y --overwrite") == "configmap/a labeled\n"
    assert kubectl("annotate configmap a n=1") == "configmap/a annotated\n"
    assert kubectl("label configmap a l-") == "configmap/a unlabeled\n"
    metadata = kubectl.json("get configmap a")["metadata"]
    assert ("labels" in metadata, metadata["annotations"]) == (False, {"n": "1"})


def test_replace(kubectl):
    kubectl("create -f -", given=config_map())
    assert kubectl("replace -f -", given=config_map(data={"j": "w"})) == "configmap/a replaced\n"
    stale = config_map(resourceVersion="1")
    assert "the object has been modified" in kubectl.refused("replace -f -", given=stale)
    assert "configmap/a replaced" in kubectl("replace --force -f -", given=config_map())


def test_delete(kubectl):
    kubectl("create -f -", given=config_map(labels={"l": "x"}))
    kubectl("create -f -", given=config_map("b", labels={"l": "x"}))
    assert kubectl("delete configmap a") == f'configmap "a" deleted from {kubectl.namespace} namespace\n'
    assert "deleted" in kubectl("delete configmaps -l l=x")
    assert kubectl("delete configmap a --ignore-not-found") == ""
    assert "not found" in kubectl.refused("delete configmap a")


def test_delete_waits_for_finalizers(kubectl):
    kubectl("create -f -", given=config_map(finalizers=["example.com/hold"]))
    with kubectl.start("delete configmap a") as process:
        kubectl("wait --for=jsonpath={.metadata.deletionTimestamp} configmap/a --timeout=30s")
        assert process.poll() is None
        kubectl("patch configmap a --type=merge -p", json.dumps({"metadata": {"finalizers": None}}))
        assert process.wait(30) == 0
    assert kubectl("get configmap a --ignore-not-found") == ""


def test_delete_of_a_namespace_empties_it(kubectl):
    name = f"{kubectl.namespace}-x"
    kubectl(f"create namespace {name}")
    kubectl(f"create configmap a -n {name}")
    assert kubectl(f"delete namespace {name}") == f'namespace "{name}" deleted\n'


def test_delete_cascades(kubectl):
    kubectl("create deployment a --image=i --replicas=1")
    kubectl("wait --for=condition=Available deployment/a --timeout=30s")
    kubectl("delete deployment a --cascade=orphan")
    (replicas,) = kubectl("get replicasets -o name").split()
    kubectl(f"delete {replicas} --cascade=foreground")
    assert kubectl("get pods -o name") == ""


def test_wait(gizmos):
    gizmos("create -f -", given=gizmo())
    assert "timed out waiting for the condition" in gizmos.refused(
        "wait --for=condition=Ready gizmo/a --timeout=1s"
    )
    ready = {"status": {"phase": "Up", "conditions": [{"type": "Ready", "status": "True"}]}}
    with gizmos.start("wait --for=condition=Ready gizmo/a --timeout=30s") as process:
        gizmos("patch gizmo a --subresource=status --type=merge -p", json.dumps(ready))
        assert process.stdout.read() == "gizmo.kubectl.example.com/a condition met\n"
    assert "condition met" in gizmos("wait --for=jsonpath={.status.phase}=Up gizmo/a")
    with gizmos.start("wait --for=delete gizmo/a --timeout=30s") as process:
        gizmos("delete gizmo a")
        assert process.wait(30) == 0
    gizmos("create -f -", given=gizmo("b"))
    assert "condition met" in gizmos("wait --for=create gizmo/b --timeout=30s")


@pytest.mark.regression
@pytest.mark.parametrize("version", ["v1", "nope.example.com/v1"])
@pytest.mark.parametrize(
    "command",
    ["apply", "apply --server-side", "apply --dry-run=client", "create", "create --validate=true", "delete"],
)
def test_a_kind_that_nobody_knows(kubectl, command, version):
    refused = kubectl.refused(
        f"{command} -f -", given={**config_map(), "apiVersion": version, "kind": "Nope"}
    )
    assert refused.endswith(
        f'no matches for kind "Nope" in version "{version}"\nensure CRDs are installed first'
    )


@pytest.mark.regression
def test_the_samples_are_applied_at_once(kubectl):
    for arguments in (["--crds"], []):
        printed = CliRunner().invoke(webhosting, ["samples", "show", *arguments]).output
        assert "created" in kubectl("apply -n project-foo -f -", given=printed)
    kubectl("delete themes,websites -A --all")
    kubectl("delete namespace project-foo --wait=false")
