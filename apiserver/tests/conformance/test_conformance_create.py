"""create: names, metadata, rejections."""

import re

import pytest
from conformance_kinds import config_map


async def test_create_answers_201_with_what_the_server_sets(api, ns, maps):
    made = await api.create(maps, config_map(data={"a": "1"}))
    assert made.status == 201
    assert made["data"] == {"a": "1"}
    assert made.meta["namespace"] == ns
    assert re.fullmatch(r"[0-9a-f-]{36}", made.meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made.meta["creationTimestamp"])
    assert made.version.isdecimal()
    assert "generation" not in made.meta


async def test_create_ignores_what_only_the_server_sets(api, maps):
    given = {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "x"}
    made = await api.create(maps, config_map(**given))
    assert made.meta["uid"] != "mine"
    assert not made.meta["creationTimestamp"].startswith("2001")
    assert "selfLink" not in made.meta


async def test_create_ignores_a_deletion_timestamp(api, maps):
    given = {"deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3}
    made = await api.create(maps, config_map(**given))
    assert {"deletionTimestamp", "deletionGracePeriodSeconds"}.isdisjoint(made.meta)
    assert "managedFields" not in made.meta


async def test_a_manager_with_a_name_that_is_too_long_is_refused(api, maps):
    entry = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}
    refused = await api.create(maps, config_map(managedFields=[{"manager": "m" * 129, **entry}]))
    assert refused.causes == {
        ("metadata.managedFields[0].manager", "FieldValueTooLong", "Too long: may not be more than 128 bytes")
    }


async def test_create_of_a_taken_name_is_already_exists(api, maps):
    await api.create(maps, config_map())
    again = await api.create(maps, config_map())
    assert again.refusal == (409, "AlreadyExists")
    assert again.message == 'configmaps "a" already exists'
    assert again.details == {"name": "a", "kind": "configmaps"}


async def test_generate_name_adds_five_characters(api, maps):
    made = await api.create(maps, {"metadata": {"generateName": "gen-"}})
    assert re.fullmatch(r"gen-[bcdfghjklmnpqrstvwxz2456789]{5}", made.meta["name"])
    assert made.meta["generateName"] == "gen-"


async def test_generate_name_cuts_a_long_prefix(api, maps):
    made = await api.create(maps, {"metadata": {"generateName": "g" * 80}})
    assert len(made.meta["name"]) == 63


async def test_a_name_wins_over_generate_name(api, maps):
    made = await api.create(maps, {"metadata": {"name": "a", "generateName": "gen-"}})
    assert made.meta["name"] == "a"


async def test_create_without_a_name_is_invalid(api, maps):
    refused = await api.create(maps, {"metadata": {}})
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {
        ("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
    }
    assert refused.message.startswith('ConfigMap "" is invalid: metadata.name: Required value')


@pytest.mark.parametrize("bad", ["A", "a_b", "-a", "a-", "a..b", "a" * 254])
async def test_a_bad_name_is_invalid(api, maps, bad):
    refused = await api.create(maps, config_map(bad))
    assert refused.refusal == (422, "Invalid")
    assert "metadata.name" in refused.fields
    assert refused.details["name"] == bad
    assert refused.details["kind"] == "ConfigMap"


async def test_a_bad_name_is_explained(api, maps):
    refused = await api.create(maps, config_map("A"))
    assert refused.message == (
        'ConfigMap "A" is invalid: metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of '
        "lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
        "'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


async def test_every_bad_part_of_metadata_is_a_cause(api, maps):
    bad = config_map(labels={"x": "a b", "-": "c"}, annotations={"a b": "1"}, finalizers=["plain"])
    refused = await api.create(maps, bad)
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"metadata.labels", "metadata.annotations", "metadata.finalizers[0]"}
    assert len(refused.causes) == 4


async def test_a_label_value_of_64_characters_is_invalid(api, maps):
    refused = await api.create(maps, config_map(labels={"x": "a" * 64}))
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"metadata.labels"}


async def test_an_owner_without_uid_is_invalid(api, maps):
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}
    refused = await api.create(maps, config_map(ownerReferences=[owner]))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {
        ("metadata.ownerReferences[0].uid", "FieldValueRequired", "Required value: must not be empty")
    }


async def test_two_controllers_are_invalid(api, maps):
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": True}
        for name in "xy"
    ]
    refused = await api.create(maps, config_map(ownerReferences=owners))
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"metadata.ownerReferences"}


@pytest.mark.regression
async def test_a_dry_run_with_a_resource_version_keeps_it(api, maps):
    made = await api.create(maps, config_map(resourceVersion="5"), dryRun="All")
    assert made.status == 201, made.text
    assert made.version == "5"


async def test_a_dry_run_of_what_is_there_already_is_a_conflict(api, maps):
    assert (await api.create(maps, config_map())).status == 201
    refused = await api.create(maps, config_map(resourceVersion="5"), dryRun="All")
    assert refused.refusal == (409, "AlreadyExists")
    refused = await api.create(maps, config_map(resourceVersion="5"))
    assert refused.refusal == (500, None)


@pytest.mark.parametrize("version", ["0", "x", "-1", "9" * 30, "9" * 5000])
async def test_what_is_no_resource_version_is_passed_over(api, maps, version):
    made = await api.create(maps, config_map(resourceVersion=version))
    assert made.status == 201, made.text
    assert made.version != version


async def test_a_mistake_of_the_object_is_told_before_its_resource_version(api, maps):
    refused = await api.create(maps, config_map(name="B", resourceVersion="5"))
    assert refused.refusal == (422, "Invalid")


async def test_create_with_a_resource_version_is_refused(api, maps):
    refused = await api.create(maps, config_map(resourceVersion="5"))
    assert refused.refusal == (500, None)
    assert refused.message == "resourceVersion should not be set on objects to be created"


async def test_a_namespace_other_than_the_paths_is_a_bad_request(api, maps):
    refused = await api.create(maps, config_map(namespace="other"))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )


async def test_another_kind_than_the_paths_is_a_bad_request(api, maps):
    refused = await api.create(maps, {**config_map(), "kind": "Secret"})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.startswith('Secret in version "v1" cannot be handled as a ConfigMap: ')


@pytest.mark.parametrize("body", [b'{"metadata":', b"", b"{]"])
async def test_broken_json_is_a_bad_request(api, maps, body):
    refused = await api.create(maps, body)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.startswith("the object provided is unrecognized (must be of type ConfigMap): ")


async def test_a_value_of_another_type_than_the_fields_is_a_bad_request(api, maps):
    refused = await api.create(maps, {**config_map(), "data": {"a": 1}})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into '
        "Go struct field ConfigMap.data of type string"
    )


async def test_a_label_that_is_no_string_is_a_bad_request(api, maps):
    refused = await api.create(maps, config_map(labels={"a": 1}))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into '
        "Go struct field ObjectMeta.metadata.labels of type string"
    )


async def test_unknown_fields_are_dropped_with_a_warning(api, maps):
    made = await api.create(maps, config_map(bogus=1))
    assert made.status == 201
    assert "bogus" not in made.meta
    assert '299 - "unknown field \\"metadata.bogus\\""' in made.headers["warning"]


async def test_unknown_fields_are_refused_when_validation_is_strict(api, maps):
    refused = await api.create(maps, {**config_map(), "bogus": 1}, fieldValidation="Strict")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "bogus"'
    )


async def test_unknown_fields_are_dropped_in_silence_when_validation_is_ignored(api, maps):
    made = await api.create(maps, {**config_map(), "bogus": 1}, fieldValidation="Ignore")
    assert made.status == 201
    assert "warning" not in made.headers


async def test_a_dry_run_creates_nothing(api, maps):
    made = await api.create(maps, config_map("dry"), dryRun="All")
    assert made.status == 201
    assert "resourceVersion" not in made.meta
    assert made.meta["uid"]
    assert (await api.get(f"{maps}/dry")).refusal == (404, "NotFound")


async def test_an_unknown_dry_run_is_invalid(api, maps):
    refused = await api.create(maps, config_map(), dryRun="Some")
    assert refused.refusal == (422, "Invalid")
    assert refused.details["kind"] == "CreateOptions"
    assert refused.fields == {"dryRun"}


async def test_a_bad_config_key_is_invalid(api, maps):
    refused = await api.create(maps, config_map(data={"a b": "1"}))
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"data[a b]"}


async def test_a_secret_encodes_string_data(api, ns):
    body = {"metadata": {"name": "a"}, "stringData": {"a": "x"}, "data": {"b": "eQ=="}}
    made = await api.create(f"/api/v1/namespaces/{ns}/secrets", body)
    assert (made["data"], made["type"]) == ({"a": "eA==", "b": "eQ=="}, "Opaque")
    assert "stringData" not in made.body


async def test_secret_data_must_be_base64(api, ns):
    body = {"metadata": {"name": "a"}, "data": {"b": "?"}}
    refused = await api.create(f"/api/v1/namespaces/{ns}/secrets", body)
    assert refused.refusal == (400, "BadRequest")


async def test_a_taken_name_beside_generate_name_is_told_as_one_that_was_generated(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    refused = await api.create(maps, {"metadata": {"name": "a", "generateName": "b-"}})
    assert refused.refusal == (409, "AlreadyExists")
    told = 'configmaps "a" already exists, the server was not able to generate a unique name for the object'
    assert refused.message == told
    assert (refused.details["retryAfterSeconds"], refused.headers["retry-after"]) == (1, "1")
