"""Owners and dependents, as described in kubernetes.io "Garbage Collection"."""

from __future__ import annotations

from typing import Any

from cluster_api import ClusterApi, config_map, owned_by

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GADGETS = {
    "metadata": {"name": "gadgets.cluster.kubeshard.test"},
    "spec": {
        "group": "cluster.kubeshard.test",
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}
HELD = "kubeshard.test/held"


async def owner(api: ClusterApi, name: str = "owner") -> Any:
    return await api.create("configmaps", config_map(name))


async def release(api: ClusterApi, path: str) -> None:
    await api.patch(path, {"metadata": {"finalizers": None}})


async def collector_has_passed(api: ClusterApi) -> None:
    """Waits until the collector has deleted an ownerless dependent that is newer than the objects of the test case."""
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "no-such-uid"}
    await api.create("configmaps", config_map("last", nobody))
    await api.until_gone("configmaps/last")


async def test_dependents_go_with_their_only_owner(api: ClusterApi) -> None:
    reference = owned_by(await owner(api))
    for number in range(3):
        await api.create("configmaps", config_map(f"dependent-{number}", reference))
    await api.delete("configmaps/owner")
    await api.until_gone(*(f"configmaps/dependent-{number}" for number in range(3)))


async def test_dependents_of_dependents_go_as_well(api: ClusterApi) -> None:
    child = await api.create("configmaps", config_map("child", owned_by(await owner(api))))
    grandchild = await api.create("secrets", config_map("grandchild", owned_by(child)))
    await api.create("configmaps", config_map("great-grandchild", owned_by(grandchild)))
    await api.delete("configmaps/owner")
    await api.until_gone("configmaps/child", "secrets/grandchild", "configmaps/great-grandchild")


async def test_an_object_with_another_owner_stays_and_loses_the_dead_reference(api: ClusterApi) -> None:
    both = [owned_by(await owner(api)), owned_by(await owner(api, "other"))]
    await api.create("configmaps", config_map("dependent", *both))
    await api.delete("configmaps/owner")

    async def one_is_left() -> bool:
        found = await api.get("configmaps/dependent")
        return bool(found["metadata"]["ownerReferences"] == both[1:])

    await api.until(one_is_left, "only the living owner is named")


async def test_an_owner_of_the_same_name_but_another_uid_is_no_owner(api: ClusterApi) -> None:
    reference = owned_by(await owner(api))
    await api.create("configmaps", config_map("dependent", {**reference, "uid": "another"}))
    await api.until_gone("configmaps/dependent")
    assert await api.get("configmaps/owner")


async def test_an_owner_in_another_namespace_is_no_owner(api: ClusterApi) -> None:
    elsewhere = await api.get("/api/v1/namespaces/kube-system/configmaps/elsewhere")
    elsewhere = elsewhere or await api.create(
        "/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "elsewhere"}}
    )
    await api.create("configmaps", config_map("dependent", owned_by(elsewhere)))
    await api.until_gone("configmaps/dependent")
    assert await api.get("/api/v1/namespaces/kube-system/configmaps/elsewhere")


async def test_a_cluster_scoped_owner_may_have_dependents_in_namespaces(api: ClusterApi) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    role = await api.create(path, {"metadata": {"name": api.namespace}, "rules": []})
    await api.create("configmaps", config_map("dependent", owned_by(role)))
    await collector_has_passed(api)
    assert await api.get("configmaps/dependent")
    await api.delete(f"{path}/{api.namespace}")
    await api.until_gone("configmaps/dependent")


async def test_an_object_whose_owner_is_of_an_unknown_kind_is_left_alone(api: ClusterApi) -> None:
    unknown = {"apiVersion": "nowhere.kubeshard.test/v1", "kind": "Nothing", "name": "a", "uid": "b"}
    await api.create("configmaps", config_map("dependent", unknown))
    await collector_has_passed(api)
    assert await api.get("configmaps/dependent")


async def test_a_reference_with_the_uid_of_a_removed_owner_but_an_unknown_kind_leaves_the_object_alone(
    api: ClusterApi,
) -> None:
    reference = owned_by(await owner(api))
    unknown = {**reference, "apiVersion": "nowhere.kubeshard.test/v1", "kind": "Nothing"}
    await api.create("configmaps", config_map("dependent", reference))
    await api.create("configmaps", config_map("mistaken", unknown))
    await api.delete("configmaps/owner")
    await api.until_gone("configmaps/dependent")
    await collector_has_passed(api)
    assert await api.get("configmaps/mistaken")


async def test_a_cluster_scoped_object_with_a_namespaced_owner_is_left_alone(api: ClusterApi) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    reference = owned_by(await owner(api))
    await api.create(path, {**config_map(f"{api.namespace}-owned", reference), "rules": []})
    await api.delete("configmaps/owner")
    await collector_has_passed(api)
    assert await api.get(f"{path}/{api.namespace}-owned")
    await api.delete(f"{path}/{api.namespace}-owned")


async def test_a_dependent_made_after_its_owner_s_end_goes_at_once(api: ClusterApi) -> None:
    reference = owned_by(await owner(api))
    await api.delete("configmaps/owner")
    await api.create("configmaps", config_map("dependent", reference))
    await api.until_gone("configmaps/dependent")


async def test_a_reference_added_later_counts_as_well(api: ClusterApi) -> None:
    reference = owned_by(await owner(api))
    await api.create("configmaps", config_map("dependent"))
    await api.patch("configmaps/dependent", {"metadata": {"ownerReferences": [reference]}})
    await api.delete("configmaps/owner")
    await api.until_gone("configmaps/dependent")


async def test_an_owner_held_by_a_finalizer_keeps_its_dependents_until_it_is_gone(api: ClusterApi) -> None:
    held = await api.create("configmaps", config_map("owner", finalizers=[HELD]))
    await api.create("configmaps", config_map("dependent", owned_by(held)))
    await api.delete("configmaps/owner")
    await collector_has_passed(api)
    assert await api.get("configmaps/dependent")
    await release(api, "configmaps/owner")
    await api.until_gone("configmaps/owner", "configmaps/dependent")


async def test_foreground_the_owner_waits_for_dependents_that_block_it(api: ClusterApi) -> None:
    reference = owned_by(await owner(api), blockOwnerDeletion=True)
    await api.create("configmaps", config_map("dependent", reference, finalizers=[HELD]))
    waiting = await api.delete("configmaps/owner", "Foreground")
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def is_deleted() -> bool:
        found = await api.get("configmaps/dependent")
        return "deletionTimestamp" in found["metadata"]

    await api.until(is_deleted, "the dependent is being deleted")
    await collector_has_passed(api)
    assert await api.get("configmaps/owner")
    await release(api, "configmaps/dependent")
    await api.until_gone("configmaps/dependent", "configmaps/owner")


async def test_foreground_the_owner_does_not_wait_for_other_dependents(api: ClusterApi) -> None:
    reference = owned_by(await owner(api))
    await api.create("configmaps", config_map("dependent", reference, finalizers=[HELD]))
    await api.delete("configmaps/owner", "Foreground")
    await api.until_gone("configmaps/owner")
    assert await api.get("configmaps/dependent")
    await release(api, "configmaps/dependent")
    await api.until_gone("configmaps/dependent")


async def test_foreground_dependents_with_dependents_wait_for_theirs(api: ClusterApi) -> None:
    child = await api.create(
        "configmaps", config_map("child", owned_by(await owner(api), blockOwnerDeletion=True))
    )
    reference = owned_by(child, blockOwnerDeletion=True)
    await api.create("configmaps", config_map("grandchild", reference, finalizers=[HELD]))
    await api.delete("configmaps/owner", "Foreground")

    async def child_waits() -> bool:
        found = await api.get("configmaps/child")
        return found["metadata"].get("finalizers") == ["foregroundDeletion"]

    await api.until(child_waits, "the child waits in the foreground")
    await release(api, "configmaps/grandchild")
    await api.until_gone("configmaps/grandchild", "configmaps/child", "configmaps/owner")


async def test_foreground_another_owner_keeps_the_dependent_and_the_deletion_goes_on(api: ClusterApi) -> None:
    both = [owned_by(await owner(api), blockOwnerDeletion=True), owned_by(await owner(api, "other"))]
    await api.create("configmaps", config_map("dependent", *both))
    await api.delete("configmaps/owner", "Foreground")
    await api.until_gone("configmaps/owner")
    found = await api.get("configmaps/dependent")
    assert found["metadata"]["ownerReferences"] == both[1:]


async def test_foreground_a_circle_of_owners_goes(api: ClusterApi) -> None:
    one = await owner(api, "one")
    two = await api.create("configmaps", config_map("two", owned_by(one, blockOwnerDeletion=True)))
    references = [owned_by(two, blockOwnerDeletion=True)]
    await api.patch("configmaps/one", {"metadata": {"ownerReferences": references}})
    await api.delete("configmaps/one", "Foreground")
    await api.until_gone("configmaps/one", "configmaps/two")


async def test_orphan_dependents_stay_without_their_owner(api: ClusterApi) -> None:
    both = [owned_by(await owner(api)), owned_by(await owner(api, "other"))]
    await api.create("configmaps", config_map("one", both[0]))
    await api.create("configmaps", config_map("two", *both))
    await api.delete("configmaps/owner", "Orphan")
    await api.until_gone("configmaps/owner")
    one, two = await api.get("configmaps/one"), await api.get("configmaps/two")
    assert "ownerReferences" not in one["metadata"]
    assert two["metadata"]["ownerReferences"] == both[1:]


async def test_custom_resources_own_and_are_owned(api: ClusterApi) -> None:
    await install_gadgets(api)
    gadget = await api.create("gadgets", {**GADGET, "metadata": {"name": "owner"}})
    await api.create("configmaps", config_map("dependent", owned_by(gadget)))
    owned = {**GADGET, **config_map("owned", owned_by(await owner(api)))}
    await api.create("gadgets", owned)
    await api.delete("gadgets/owner")
    await api.delete("configmaps/owner")
    await api.until_gone("configmaps/dependent", "gadgets/owned")


GADGET = {"apiVersion": "cluster.kubeshard.test/v1", "kind": "Gadget"}


async def install_gadgets(api: ClusterApi) -> None:
    if await api.get(f"{DEFINITIONS}/{GADGETS['metadata']['name']}") is None:
        await api.create(DEFINITIONS, GADGETS)

    await api.until(lambda: api.is_served("gadgets"), "gadgets are served")
