"""Namespaces: their lifecycle, and what may be created in them."""

import pytest
from conformance_api import owned
from conformance_kinds import config_map, site

NAMESPACES = "/api/v1/namespaces"


def namespace(name, **metadata):
    return {"metadata": {"name": name, **metadata}}


async def test_a_new_namespace_is_active_with_its_finalizer_and_label(api, name):
    made = await api.create(NAMESPACES, namespace(name))
    assert made["status"] == {"phase": "Active"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made.meta["labels"] == {"kubernetes.io/metadata.name": name}
    labels = {".": {}, "f:kubernetes.io/metadata.name": {}}
    assert owned(made) == {("conformance", "Update", ""): {"f:metadata": {"f:labels": labels}}}


async def test_a_generated_name_is_in_the_label_too_which_nobody_owns(api, name):
    made = await api.create(NAMESPACES, {"metadata": {"generateName": f"{name}-"}})
    assert made.meta["labels"] == {"kubernetes.io/metadata.name": made.meta["name"]}
    assert owned(made) == {("conformance", "Update", ""): {"f:metadata": {"f:generateName": {}}}}


async def test_the_name_label_cannot_be_changed(api, ns):
    changed = await api.merge(
        f"{NAMESPACES}/{ns}", {"metadata": {"labels": {"kubernetes.io/metadata.name": "x"}}}
    )
    assert changed.meta["labels"] == {"kubernetes.io/metadata.name": ns}


@pytest.mark.parametrize("bad", ["a.b", "A", "a" * 64])
async def test_a_namespaces_name_is_a_label(api, bad):
    refused = await api.create(NAMESPACES, namespace(bad))
    assert refused.refusal == (422, "Invalid")
    assert "metadata.name" in refused.fields


async def test_nothing_is_created_in_a_missing_namespace(api, name):
    refused = await api.create(f"{NAMESPACES}/{name}/configmaps", config_map())
    assert refused.refusal == (404, "NotFound")
    assert refused.message == f'namespaces "{name}" not found'
    assert refused.details == {"name": name, "kind": "namespaces"}


@pytest.mark.parametrize("phase", ["Terminating", "x", "", None, "Active"])
async def test_the_phase_of_a_namespace_follows_its_deletion(api, ns, phase):
    changed = await api.merge(f"{NAMESPACES}/{ns}/status", {"status": {"phase": phase}})
    if phase in ("Terminating", "x"):
        assert changed.refusal == (422, "Invalid")
        assert changed.fields == {"status.Phase"}
    else:
        assert changed["status"] == {"phase": "Active"}
    await api.delete(f"{NAMESPACES}/{ns}")
    refused = await api.merge(f"{NAMESPACES}/{ns}/status", {"status": {"phase": "Active"}})
    assert refused.fields == {"status.Phase"}


async def test_a_finalizer_of_a_namespace_that_has_no_domain_is_refused(api, ns):
    live = (await api.get(f"{NAMESPACES}/{ns}")).body
    given = ["x", "-", "example.com/a"]
    refused = await api.replace(f"{NAMESPACES}/{ns}/finalize", {**live, "spec": {"finalizers": given}})
    assert refused.fields == {"spec.finalizers[0]", "spec.finalizers[1]"}
    made = await api.create(NAMESPACES, {**namespace(f"{ns}-x"), "spec": {"finalizers": given[:2]}})
    assert made.fields == {"spec.finalizers"}


async def test_deletion_begins_with_the_phase_terminating(api, ns):
    kept = await api.delete(f"{NAMESPACES}/{ns}")
    assert kept.status == 200
    assert kept["status"] == {"phase": "Terminating"}
    assert kept.meta["deletionTimestamp"]
    assert "deletionGracePeriodSeconds" not in kept.meta


async def test_a_second_deletion_changes_nothing(api, ns):
    first = await api.delete(f"{NAMESPACES}/{ns}")
    assert (await api.delete(f"{NAMESPACES}/{ns}")).body == first.body


async def test_nothing_is_created_in_a_terminating_namespace(api, ns, maps):
    await api.delete(f"{NAMESPACES}/{ns}")
    refused = await api.create(maps, config_map())
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == (
        f'configmaps "a" is forbidden: unable to create new content in namespace {ns} because it is being terminated'
    )
    assert refused.causes == {
        ("metadata.namespace", "NamespaceTerminating", f"namespace {ns} is being terminated")
    }


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("bindings", {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}, 'bindings "a"'),
        ("pods/a/binding", {"metadata": {"name": "b"}}, 'pods "a"'),
        ("pods/a/eviction", {"metadata": {"name": "b"}}, 'pods "a"'),
        ("serviceaccounts/a/token", {"spec": {"audiences": []}}, 'serviceaccounts "a"'),
    ],
)
async def test_bindings_evictions_and_tokens_are_new_in_a_namespace_too(api, ns, path, body, told):
    missing = await api.create(f"{NAMESPACES}/missing-{ns}/{path}", body)
    assert (missing.refusal, missing.message) == (
        (404, "NotFound"),
        f'namespaces "missing-{ns}" not found',
    )
    await api.delete(f"{NAMESPACES}/{ns}")
    refused = await api.create(f"{NAMESPACES}/{ns}/{path}", body)
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == (
        f"{told} is forbidden: unable to create new content in namespace {ns} because it is being terminated"
    )


async def test_apply_creates_nothing_in_a_terminating_namespace(api, ns, maps):
    await api.delete(f"{NAMESPACES}/{ns}")
    assert (await api.apply(f"{maps}/a", config_map())).refusal == (403, "Forbidden")


async def test_no_custom_resource_is_created_in_a_terminating_namespace(api, ns, sites):
    await api.delete(f"{NAMESPACES}/{ns}")
    assert (await api.create(sites, site())).refusal == (403, "Forbidden")


async def test_what_is_in_a_terminating_namespace_can_still_be_changed(api, ns, maps):
    await api.create(maps, config_map())
    await api.delete(f"{NAMESPACES}/{ns}")
    assert (await api.merge(f"{maps}/a", {"data": {"a": "1"}})).status == 200
    assert (await api.delete(f"{maps}/a")).status == 200


async def test_finalize_of_a_deleted_namespace_removes_it(api, ns):
    await api.delete(f"{NAMESPACES}/{ns}")
    done = await api.replace(f"{NAMESPACES}/{ns}/finalize", {**namespace(ns), "spec": {}})
    assert done.status == 200
    assert (await api.get(f"{NAMESPACES}/{ns}")).status == 404


async def test_a_plain_update_cannot_empty_the_finalizers(api, ns):
    kept = await api.merge(f"{NAMESPACES}/{ns}", {"spec": {"finalizers": []}})
    assert kept["spec"] == {"finalizers": ["kubernetes"]}


async def test_a_plain_update_cannot_change_the_status(api, ns):
    kept = await api.merge(f"{NAMESPACES}/{ns}", {"status": {"phase": "Terminating"}})
    assert kept["status"] == {"phase": "Active"}


async def test_namespaces_are_selected_by_phase(api, ns):
    await api.delete(f"{NAMESPACES}/{ns}")
    query = {"fieldSelector": f"status.phase=Terminating,metadata.name={ns}"}
    assert len((await api.get(NAMESPACES, **query))["items"]) == 1


@pytest.mark.parametrize("immortal", ["default", "kube-system", "kube-public"])
async def test_a_namespace_of_the_cluster_may_not_be_deleted(api, immortal):
    refused = await api.delete(f"{NAMESPACES}/{immortal}", dryRun="All")
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == f'namespaces "{immortal}" is forbidden: this namespace may not be deleted'


async def test_a_finalizer_of_a_namespace_has_a_domain(api, name):
    refused = await api.create(NAMESPACES, {**namespace(name), "spec": {"finalizers": ["x"]}})
    told = 'Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified'
    assert refused.causes == {("spec.finalizers", "FieldValueInvalid", told)}


async def test_namespaces_are_not_deleted_as_a_collection(api):
    assert (await api.delete(NAMESPACES, labelSelector="none=none")).refusal == (405, "MethodNotAllowed")


async def test_a_namespace_has_no_namespace(api, name):
    made = await api.create(NAMESPACES, namespace(name, namespace="x"))
    assert made.status == 201
    assert "namespace" not in made.meta


@pytest.mark.parametrize("initial", ["default", "kube-system"])
async def test_initial_namespaces_exist(api, initial):
    assert (await api.get(f"{NAMESPACES}/{initial}"))["status"] == {"phase": "Active"}
