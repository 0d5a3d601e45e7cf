"""How deletion differs between kinds: the response, and the fate of dependents if the request does not specify it."""

from __future__ import annotations

import pytest

CONTAINERS = {"containers": [{"name": "a", "image": "a"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": CONTAINERS}
JOB = {"spec": {"template": {"spec": {**CONTAINERS, "restartPolicy": "Never"}}}}
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
CONTROLLER = {"spec": {"selector": {"a": "b"}, "template": TEMPLATE}}
WORKLOAD = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
PRESERVED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)
BOTH = "orphanDependents and deletionPropagation cannot be both set"


def root(ns, group_version, plural):
    base = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    return f"{base}/namespaces/{ns}/{plural}"


@pytest.mark.parametrize(
    ("plural", "body"),
    [
        ("pods", {"spec": CONTAINERS}),
        ("services", {"spec": {"ports": [{"port": 1}]}}),
        ("serviceaccounts", {}),
        ("resourcequotas", {}),
        ("podtemplates", {"template": TEMPLATE}),
    ],
)
async def test_some_kinds_answer_a_delete_with_the_object(api, ns, plural, body):
    at = root(ns, "v1", plural)
    made = await api.create(at, {**body, "metadata": {"name": "a"}})
    gone = await api.delete(f"{at}/a")
    assert (gone.status, gone["kind"], gone.meta["uid"]) == (200, made["kind"], made.meta["uid"])
    assert (await api.get(f"{at}/a")).status == 404


@pytest.mark.parametrize(
    ("group_version", "plural", "body"),
    [
        ("v1", "configmaps", {}),
        ("v1", "secrets", {}),
        ("v1", "replicationcontrollers", CONTROLLER),
        ("apps/v1", "deployments", WORKLOAD),
        ("coordination.k8s.io/v1", "leases", {}),
        ("batch/v1", "jobs", JOB),
    ],
)
async def test_others_with_a_status_that_names_it(api, ns, group_version, plural, body):
    at = root(ns, group_version, plural)
    made = await api.create(at, {**body, "metadata": {"name": "a"}})
    gone = await api.delete(f"{at}/a", {"propagationPolicy": "Background"})
    assert (gone.status, gone["kind"], gone["status"]) == (200, "Status", "Success")
    assert (gone.details["name"], gone.details["uid"]) == ("a", made.meta["uid"])
    assert (await api.get(f"{at}/a")).status == 404


@pytest.mark.parametrize(
    ("group_version", "plural", "body"),
    [("batch/v1", "jobs", JOB), ("v1", "replicationcontrollers", CONTROLLER)],
)
async def test_dependents_of_old_kinds_are_orphaned_when_nothing_is_said(
    api, ns, group_version, plural, body
):
    at = root(ns, group_version, plural)
    for number, options in enumerate((None, {}, {"gracePeriodSeconds": 0})):
        await api.create(at, {**body, "metadata": {"name": f"a{number}"}})
        waiting = await api.delete(f"{at}/a{number}", options)
        assert (waiting.status, waiting.meta["finalizers"]) == (200, ["orphan"])
        assert (await api.get(f"{at}/a{number}")).meta["deletionTimestamp"]
    await api.create(at, {**body, "metadata": {"name": "b", "finalizers": ["example.com/c"]}})
    assert (await api.delete(f"{at}/b")).meta["finalizers"] == ["example.com/c", "orphan"]
    await api.create(at, {**body, "metadata": {"name": "c", "finalizers": ["foregroundDeletion"]}})
    assert (await api.delete(f"{at}/c")).meta["finalizers"] == ["foregroundDeletion"]


async def test_who_deletes_jobs_is_warned_that_their_pods_stay(api, ns):
    at = root(ns, "batch/v1", "jobs")
    for name in ("a", "b", "c"):
        await api.create(at, {**JOB, "metadata": {"name": name, "labels": {"in": "it"}}})
    assert (await api.delete(f"{at}/a")).warnings == [PRESERVED]
    assert (await api.delete(f"{at}/b", {"propagationPolicy": "Orphan"})).warnings == []
    assert (await api.delete(at, labelSelector="in=it")).warnings == [PRESERVED]
    assert (await api.get(f"{at}/c")).meta["finalizers"] == ["orphan"]


async def test_events_have_no_dependents(api, ns):
    at = root(ns, "v1", "events")
    for number, options in enumerate(({"propagationPolicy": "Foreground"}, {"orphanDependents": True})):
        await api.create(at, {"metadata": {"name": f"a{number}"}, "involvedObject": {"namespace": ns}})
        assert (await api.delete(f"{at}/a{number}", options))["status"] == "Success"
        assert (await api.get(f"{at}/a{number}")).status == 404


async def test_an_old_way_to_say_what_becomes_of_dependents(api, ns):
    claims, maps = root(ns, "v1", "persistentvolumeclaims"), root(ns, "v1", "configmaps")
    await api.create(claims, {**CLAIM, "metadata": {"name": "a"}})
    assert (await api.delete(f"{claims}/a", {"orphanDependents": False})).status == 202
    for name, query in (("a", "true"), ("b", "false")):
        await api.create(maps, {"metadata": {"name": name}})
        answer = await api.delete(f"{maps}/{name}", orphanDependents=query)
        assert (answer.status, answer["kind"]) == (200, "ConfigMap" if query == "true" else "Status")
    assert (await api.get(f"{maps}/a")).meta["finalizers"] == ["orphan"]


async def test_both_ways_at_once_are_refused(api, ns):
    maps = root(ns, "v1", "configmaps")
    await api.create(maps, {"metadata": {"name": "a"}})
    refused = await api.delete(f"{maps}/a", {"orphanDependents": True, "propagationPolicy": "Orphan"})
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {("propagationPolicy", "FieldValueInvalid", f'Invalid value: "Orphan": {BOTH}')}


async def test_a_namespace_that_is_to_take_its_dependents_along_waits_for_them(api, ns):
    gone = await api.delete(f"/api/v1/namespaces/{ns}", {"orphanDependents": False})
    assert (gone.status, gone.meta["finalizers"]) == (202, ["foregroundDeletion"])
