"""delete, deletecollection: preconditions, finalizers, propagation."""

import pytest
from conformance_kinds import config_map, site


async def test_delete_answers_with_the_uid_of_what_is_gone(api, maps):
    made = await api.create(maps, config_map())
    gone = await api.delete(f"{maps}/a")
    assert (gone.status, gone["status"]) == (200, "Success")
    assert gone.details == {"name": "a", "kind": "configmaps", "uid": made.meta["uid"]}
    assert (await api.get(f"{maps}/a")).refusal == (404, "NotFound")


async def test_delete_of_what_is_missing_is_not_found(api, maps):
    assert (await api.delete(f"{maps}/a")).refusal == (404, "NotFound")


async def test_a_new_object_of_the_old_name_has_another_uid(api, maps):
    first = await api.create(maps, config_map())
    await api.delete(f"{maps}/a")
    assert (await api.create(maps, config_map())).meta["uid"] != first.meta["uid"]


async def test_delete_of_another_uid_is_a_conflict(api, maps):
    made = await api.create(maps, config_map())
    refused = await api.delete(f"{maps}/a", {"preconditions": {"uid": "x"}})
    assert refused.refusal == (409, "Conflict")
    assert refused.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (x) does not match the UID in '
        f"record ({made.meta['uid']}). The object might have been deleted and then recreated"
    )


async def test_delete_of_another_version_is_a_conflict(api, maps):
    await api.create(maps, config_map())
    refused = await api.delete(f"{maps}/a", {"preconditions": {"resourceVersion": "1"}})
    assert refused.refusal == (409, "Conflict")
    assert "the ResourceVersion in the precondition (1) does not match" in refused.message


async def test_delete_with_the_right_preconditions_succeeds(api, maps):
    made = await api.create(maps, config_map())
    preconditions = {"uid": made.meta["uid"], "resourceVersion": made.version}
    assert (await api.delete(f"{maps}/a", {"preconditions": preconditions})).status == 200


async def test_a_finalizer_keeps_the_object_with_a_deletion_timestamp(api, maps):
    made = await api.create(maps, config_map(finalizers=["a/b"]))
    kept = await api.delete(f"{maps}/a")
    assert kept["kind"] == "ConfigMap"
    assert kept.meta["deletionTimestamp"]
    assert kept.meta["deletionGracePeriodSeconds"] == 0
    assert int(kept.version) > int(made.version)


async def test_a_second_delete_changes_nothing(api, maps):
    await api.create(maps, config_map(finalizers=["a/b"]))
    first = await api.delete(f"{maps}/a")
    assert (await api.delete(f"{maps}/a")).body == first.body


async def test_removing_the_last_finalizer_removes_the_object(api, maps):
    await api.create(maps, config_map(finalizers=["a/b"]))
    kept = await api.delete(f"{maps}/a")
    last = await api.merge(f"{maps}/a", {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert "finalizers" not in last.meta
    assert last.version == kept.version
    assert (await api.get(f"{maps}/a")).status == 404


async def test_removing_one_of_two_finalizers_keeps_the_object(api, maps):
    await api.create(maps, config_map(finalizers=["a/b", "a/c"]))
    await api.delete(f"{maps}/a")
    await api.merge(f"{maps}/a", {"metadata": {"finalizers": ["a/c"]}})
    assert (await api.get(f"{maps}/a")).meta["finalizers"] == ["a/c"]


async def test_no_finalizer_can_be_added_while_deleting(api, maps):
    await api.create(maps, config_map(finalizers=["a/b"]))
    await api.delete(f"{maps}/a")
    refused = await api.merge(f"{maps}/a", {"metadata": {"finalizers": ["a/b", "c/d"]}})
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {
        (
            "metadata.finalizers",
            "FieldValueForbidden",
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
            '[]string{"c/d"}',
        )
    }


async def test_a_deleting_object_takes_other_changes(api, maps):
    await api.create(maps, config_map(finalizers=["a/b"]))
    await api.delete(f"{maps}/a")
    changed = await api.merge(f"{maps}/a", {"data": {"a": "1"}})
    assert changed["data"] == {"a": "1"}
    assert changed.meta["deletionTimestamp"]


async def test_a_deletion_counts_as_a_generation(api, sites):
    await api.create(sites, site(metadata={"finalizers": ["a/b"]}))
    assert (await api.delete(f"{sites}/a")).meta["generation"] == 2


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
)
async def test_propagation_leaves_its_finalizer_to_the_garbage_collector(api, maps, policy, finalizer):
    await api.create(maps, config_map())
    kept = await api.delete(f"{maps}/a", {"propagationPolicy": policy})
    assert kept.meta["finalizers"] == [finalizer]
    assert kept.meta["deletionTimestamp"]


async def test_propagation_may_come_as_a_parameter(api, maps):
    await api.create(maps, config_map())
    assert (await api.delete(f"{maps}/a", propagationPolicy="Orphan")).meta["finalizers"] == ["orphan"]


async def test_background_propagation_removes_at_once(api, maps):
    await api.create(maps, config_map())
    assert (await api.delete(f"{maps}/a", {"propagationPolicy": "Background"}))["status"] == "Success"


async def test_an_unknown_propagation_is_invalid(api, maps):
    await api.create(maps, config_map())
    refused = await api.delete(f"{maps}/a", {"propagationPolicy": "Bogus"})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == (
        'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Bogus": supported values: '
        '"Foreground", "Background", "Orphan", "nil"'
    )


_NO_PROPAGATION = (
    'propagationPolicy: Unsupported value: "": supported values: "Foreground", "Background", "Orphan", "nil"'
)


async def test_an_empty_propagation_is_invalid(api, maps):
    await api.create(maps, config_map())
    for refused in (
        await api.delete(f"{maps}/a", {"propagationPolicy": ""}),
        await api.delete(f"{maps}/a", propagationPolicy=""),
        await api.delete(maps, propagationPolicy=""),
    ):
        assert refused.refusal == (422, "Invalid")
        assert refused.message == f'DeleteOptions.meta.k8s.io "" is invalid: {_NO_PROPAGATION}'
    assert (await api.delete(f"{maps}/a", {"propagationPolicy": None})).status == 200


async def test_everything_wrong_with_a_propagation_is_told(api, maps):
    await api.create(maps, config_map())
    refused = await api.delete(f"{maps}/a", {"propagationPolicy": "", "orphanDependents": True})
    both = 'Invalid value: "": orphanDependents and deletionPropagation cannot be both set'
    assert refused.message == (
        f'DeleteOptions.meta.k8s.io "" is invalid: [propagationPolicy: {both}, {_NO_PROPAGATION}]'
    )


async def test_a_dry_run_deletes_nothing(api, maps):
    await api.create(maps, config_map())
    assert (await api.delete(f"{maps}/a", dryRun="All"))["status"] == "Success"
    assert (await api.get(f"{maps}/a")).status == 200


async def test_an_unknown_dry_run_of_a_delete_is_invalid(api, maps):
    await api.create(maps, config_map())
    refused = await api.delete(f"{maps}/a", dryRun="Bogus")
    assert refused.causes == {
        ("dryRun", "FieldValueNotSupported", 'Unsupported value: ["Bogus"]: supported values: "All"')
    }


async def test_delete_collection_deletes_what_is_selected_and_returns_it(api, maps):
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        await api.create(maps, config_map(name, labels={"l": label}))
    gone = await api.delete(maps, labelSelector="l=x")
    assert gone["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "c"]
    left = await api.get(maps)
    assert [item["metadata"]["name"] for item in left["items"]] == ["b"]


async def test_delete_collection_leaves_what_has_finalizers_deleting(api, maps):
    await api.create(maps, config_map("a", finalizers=["a/b"]))
    await api.delete(maps)
    assert (await api.get(f"{maps}/a")).meta["deletionTimestamp"]


async def test_a_collection_over_all_namespaces_cannot_be_deleted(api, ns):
    assert (await api.delete("/api/v1/configmaps")).refusal == (405, "MethodNotAllowed")
