"""replace: optimistic locking, no-op writes, immutable fields."""

import pytest
from conformance_kinds import config_map, site


async def test_replace_with_the_version_read_succeeds(api, maps):
    made = await api.create(maps, config_map(data={"a": "1"}))
    changed = await api.replace(f"{maps}/a", {**made.body, "data": {"b": "2"}})
    assert changed.status == 200
    assert changed["data"] == {"b": "2"}
    assert int(changed.version) > int(made.version)
    assert changed.meta["uid"] == made.meta["uid"]


async def test_replace_with_an_older_version_is_a_conflict(api, maps):
    made = await api.create(maps, config_map(data={"a": "1"}))
    await api.replace(f"{maps}/a", {**made.body, "data": {"b": "2"}})
    late = await api.replace(f"{maps}/a", {**made.body, "data": {"c": "3"}})
    assert late.refusal == (409, "Conflict")
    assert late.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to '
        "the latest version and try again"
    )
    assert late.details == {"name": "a", "kind": "configmaps"}


async def test_replace_without_a_version_overwrites_a_config_map(api, maps):
    await api.create(maps, config_map(data={"a": "1"}))
    assert (await api.replace(f"{maps}/a", config_map(data={"b": "2"})))["data"] == {"b": "2"}


async def test_replace_without_a_version_is_invalid_for_custom_resources(api, sites):
    await api.create(sites, site())
    refused = await api.replace(f"{sites}/a", site())
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {
        ("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update")
    }
    assert refused.details["kind"] == "sites"


async def test_replace_that_changes_nothing_keeps_the_version(api, maps):
    made = await api.create(maps, config_map(data={"a": "1"}))
    again = await api.replace(f"{maps}/a", made.body)
    assert again.body == made.body


async def test_replace_of_what_is_missing_is_not_found(api, maps):
    refused = await api.replace(f"{maps}/a", config_map())
    assert refused.refusal == (404, "NotFound")
    assert refused.message == 'configmaps "a" not found'


async def test_replace_of_a_missing_lease_creates_it(api, leases):
    made = await api.replace(f"{leases}/a", {"metadata": {"name": "a"}, "spec": {}})
    assert made.status == 201


async def test_replace_under_another_name_is_a_bad_request(api, maps):
    await api.create(maps, config_map())
    refused = await api.replace(f"{maps}/a", config_map("b"))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "the name of the object (b) does not match the name on the URL (a)"


async def test_replace_of_another_incarnation_is_a_conflict(api, maps):
    await api.create(maps, config_map())
    refused = await api.replace(f"{maps}/a", config_map(uid="other"))
    assert refused.refusal == (409, "Conflict")
    assert "Precondition failed: UID in precondition: other" in refused.message


async def test_a_version_that_is_no_number_is_refused(api, maps):
    await api.create(maps, config_map())
    refused = await api.replace(f"{maps}/a", config_map(resourceVersion="abc"))
    assert refused.refusal == (500, None)


async def test_replace_cannot_change_the_creation_time(api, maps):
    made = await api.create(maps, config_map())
    metadata = {**made.meta, "creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"a": "b"}}
    changed = await api.replace(f"{maps}/a", {**made.body, "metadata": metadata})
    assert changed.meta["creationTimestamp"] == made.meta["creationTimestamp"]


async def test_replace_cannot_begin_a_deletion(api, maps):
    made = await api.create(maps, config_map(finalizers=["a/b"]))
    metadata = {**made.meta, "deletionTimestamp": "2001-01-01T00:00:00Z"}
    refused = await api.replace(f"{maps}/a", {**made.body, "metadata": metadata})
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"metadata.deletionTimestamp"}


async def test_a_dry_run_replaces_nothing(api, maps):
    made = await api.create(maps, config_map(data={"a": "1"}))
    told = await api.replace(f"{maps}/a", {**made.body, "data": {"b": "2"}}, dryRun="All")
    assert (told["data"], told.version) == ({"b": "2"}, made.version)
    assert (await api.get(f"{maps}/a")).body == made.body


async def test_an_immutable_config_map_keeps_its_data(api, maps):
    made = await api.create(maps, {**config_map(data={"a": "1"}), "immutable": True})
    refused = await api.replace(f"{maps}/a", {**made.body, "data": {"a": "2"}})
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"data"}


async def test_the_type_of_a_secret_is_immutable(api, ns):
    path = f"/api/v1/namespaces/{ns}/secrets"
    made = await api.create(path, {"metadata": {"name": "a"}})
    refused = await api.replace(f"{path}/a", {**made.body, "type": "example.com/other"})
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"type"}


async def test_versions_grow_over_all_kinds(api, maps, leases):
    first = await api.create(maps, config_map())
    second = await api.create(leases, {"metadata": {"name": "a"}, "spec": {}})
    third = await api.merge(f"{maps}/a", {"data": {"a": "1"}})
    assert int(first.version) < int(second.version) < int(third.version)


async def test_a_put_to_a_collection_is_not_allowed(api, maps):
    assert (await api.replace(maps, config_map())).refusal == (405, "MethodNotAllowed")


async def test_a_post_to_an_object_is_not_allowed(api, maps):
    assert (await api.create(f"{maps}/a", config_map())).refusal == (405, "MethodNotAllowed")


async def test_a_name_to_be_made_need_only_fit_a_path_in_an_update(api, sites):
    await api.create(sites, site())
    changed = await api.merge(f"{sites}/a", {"metadata": {"generateName": "A_"}})
    assert (changed.status, changed.meta["generateName"]) == (200, "A_")
    refused = await api.merge(f"{sites}/a", {"metadata": {"generateName": "a/b"}})
    assert refused.causes == {
        ("metadata.generateName", "FieldValueInvalid", "Invalid value: \"a/b\": may not contain '/'")
    }


UNSOUND = [
    {"labels": {"a": "-"}},
    {"annotations": {"-a": "x"}},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "a", "uid": ""}]},
    {"finalizers": ["orphan", "foregroundDeletion"]},
    {"uid": "x"},
]


@pytest.mark.parametrize("metadata", UNSOUND)
async def test_what_is_wrong_with_metadata_is_told_once(api, maps, sites, metadata):
    for path, body in ((sites, site()), (maps, config_map())):
        await api.create(path, body)
        refused = await api.merge(f"{path}/a", {"metadata": metadata})
        assert refused.refusal == (422, "Invalid")
    causes = [(cause["field"], cause["message"]) for cause in refused.details["causes"]]
    assert sorted(causes) == sorted(set(causes))
