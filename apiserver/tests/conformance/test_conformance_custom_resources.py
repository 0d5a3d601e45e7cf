"""Custom resources: schema, defaults, pruning, status, generation."""

import pytest
from conformance_kinds import site


async def test_defaults_are_filled_in(api, sites):
    made = await api.create(sites, site(spec={"theme": "dark", "nested": {}}))
    assert made["spec"] == {"theme": "dark", "replicas": 1, "nested": {"a": "x"}}


async def test_unknown_fields_are_pruned_with_warnings(api, sites):
    made = await api.create(sites, site(spec={"theme": "dark", "bogus": 1}))
    assert made.status == 201
    assert made["spec"] == {"theme": "dark", "replicas": 1}
    assert made.headers["warning"] == '299 - "unknown field \\"spec.bogus\\""'


async def test_unknown_fields_are_refused_when_validation_is_strict(api, sites):
    refused = await api.create(sites, site(spec={"theme": "dark", "bogus": 1}), fieldValidation="Strict")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'Site in version "v1" cannot be handled as a Site: strict decoding error: unknown field "spec.bogus"'
    )


async def test_preserved_fields_are_kept(api, sites):
    made = await api.create(sites, site(spec={"theme": "dark", "free": {"x": [{"y": None}]}}))
    assert made["spec"]["free"] == {"x": [{"y": None}]}


async def test_null_counts_as_absent_where_it_is_not_allowed(api, sites):
    made = await api.create(
        sites, site(spec={"theme": "dark", "color": None, "replicas": None, "maybe": None})
    )
    assert made["spec"] == {"theme": "dark", "replicas": 1, "maybe": None}


INVALID = "FieldValueInvalid"
TYPE = "FieldValueTypeInvalid"


def wrong_type(field, wanted, given):
    return {(field, TYPE, f'Invalid value: "{given}": {field} in body must be of type {wanted}: "{given}"')}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({}, {("spec.theme", "FieldValueRequired", "Required value")}),
        ({"theme": None}, {("spec.theme", "FieldValueRequired", "Required value")}),
        ({"theme": 1}, wrong_type("spec.theme", "string", "integer")),
        ("x", wrong_type("spec", "object", "string")),
        ({"theme": "a", "replicas": "1"}, wrong_type("spec.replicas", "integer", "string")),
        ({"theme": "a", "on": "true"}, wrong_type("spec.on", "boolean", "string")),
        ({"theme": "a", "ratio": "1"}, wrong_type("spec.ratio", "number", "string")),
        ({"theme": "a", "list": "x"}, wrong_type("spec.list", "array", "string")),
        ({"theme": "a", "list": ["x", 1]}, wrong_type("spec.list[1]", "string", "integer")),
        ({"theme": "a", "nested": []}, wrong_type("spec.nested", "object", "array")),
        ({"theme": "a", "map": {"k": 1}}, wrong_type("spec.map.k", "string", "integer")),
        ({"theme": "a", "either": True}, wrong_type("spec.either", "integer,string", "boolean")),
        (
            {"theme": ""},
            {
                (
                    "spec.theme",
                    INVALID,
                    'Invalid value: "": spec.theme in body should be at least 1 chars long',
                )
            },
        ),
        (
            {"theme": "abcdef"},
            {("spec.theme", "FieldValueTooLong", "Too long: may not be more than 5 bytes")},
        ),
        (
            {"theme": "A"},
            {("spec.theme", INVALID, "Invalid value: \"A\": spec.theme in body should match '^[a-z]+$'")},
        ),
        (
            {"theme": "a", "replicas": 0},
            {
                (
                    "spec.replicas",
                    INVALID,
                    "Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
                )
            },
        ),
        (
            {"theme": "a", "replicas": 11},
            {
                (
                    "spec.replicas",
                    INVALID,
                    "Invalid value: 11: spec.replicas in body should be less than or equal to 10",
                )
            },
        ),
        (
            {"theme": "a", "color": "green"},
            {
                (
                    "spec.color",
                    "FieldValueNotSupported",
                    'Unsupported value: "green": supported values: "red", "blue"',
                )
            },
        ),
        (
            {"theme": "a", "tags": ["x", "x"]},
            {("spec.tags[1]", "FieldValueDuplicate", 'Duplicate value: "x"')},
        ),
        (
            {"theme": "a", "tags": ["x", "y", "z"]},
            {("spec.tags", "FieldValueTooMany", "Too many: 3: must have at most 2 items")},
        ),
        (
            {"theme": "a", "tags": []},
            {("spec.tags", INVALID, "Invalid value: 0: spec.tags in body should have at least 1 items")},
        ),
        (
            {"theme": "a", "ports": [{"name": "x"}, {"name": "x"}]},
            {("spec.ports[1]", "FieldValueDuplicate", 'Duplicate value: {"name":"x"}')},
        ),
        (
            {"theme": "a", "ports": [{"port": 1}]},
            {("spec.ports[0].name", "FieldValueRequired", "Required value")},
        ),
        (
            {"theme": 1, "replicas": 0},
            wrong_type("spec.theme", "string", "integer")
            | {
                (
                    "spec.replicas",
                    INVALID,
                    "Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
                )
            },
        ),
    ],
)
async def test_what_does_not_fit_the_schema_is_invalid(api, sites, spec, causes):
    refused = await api.create(sites, site(spec=spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes
    assert refused.details["name"] == "a"
    assert (refused.details["group"], refused.details["kind"]) == ("conformance.example.com", "Site")


@pytest.mark.parametrize("value", [1, "1"])
async def test_int_or_string_takes_either(api, sites, value):
    assert (await api.create(sites, site(spec={"theme": "a", "either": value})))["spec"]["either"] == value


async def test_an_integer_fits_a_number(api, sites):
    assert (await api.create(sites, site(spec={"theme": "a", "ratio": 2})))["spec"]["ratio"] == 2


async def test_a_missing_spec_is_named(api, sites):
    body = site()
    del body["spec"]
    assert (await api.create(sites, body)).causes == {("spec", "FieldValueRequired", "Required value")}


async def test_kind_and_version_must_be_given(api, sites):
    body = site()
    del body["kind"]
    refused = await api.create(sites, body)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.startswith(
        "the object provided is unrecognized (must be of type Site): Object 'Kind' is missing in "
    )


async def test_another_version_is_a_bad_request(api, sites):
    refused = await api.create(sites, {**site(), "apiVersion": "conformance.example.com/v2"})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        "the API version in the data (conformance.example.com/v2) does not match the expected API version "
        "(conformance.example.com/v1)"
    )


async def test_another_kind_is_invalid(api, sites):
    refused = await api.create(sites, {**site(), "kind": "Other"})
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {("kind", INVALID, 'Invalid value: "Other": must be Site')}


async def test_create_drops_the_status(api, sites):
    assert "status" not in (await api.create(sites, site(status={"phase": "Ready"}))).body


async def test_an_update_of_the_object_leaves_its_status(api, sites):
    await api.create(sites, site())
    await api.merge(f"{sites}/a/status", {"status": {"phase": "Ready"}})
    changed = await api.merge(f"{sites}/a", {"spec": {"theme": "light"}, "status": {"phase": "Bad"}})
    assert (changed["spec"]["theme"], changed["status"]) == ("light", {"phase": "Ready"})


async def test_an_update_of_the_status_leaves_all_else(api, sites):
    made = await api.create(sites, site())
    body = {
        "metadata": {"labels": {"l": "x"}, "finalizers": ["a/b"]},
        "spec": {"theme": "light"},
        "status": {"phase": "Ready"},
    }
    changed = await api.merge(f"{sites}/a/status", body)
    assert changed["status"] == {"phase": "Ready"}
    assert changed["spec"] == made["spec"]
    assert {"labels", "finalizers"}.isdisjoint(changed.meta)


async def test_a_status_update_that_changes_nothing_keeps_the_version(api, sites):
    await api.create(sites, site())
    first = await api.merge(f"{sites}/a/status", {"status": {"phase": "Ready"}})
    again = await api.merge(f"{sites}/a/status", {"status": {"phase": "Ready"}, "spec": {"theme": "other"}})
    assert again.version == first.version


async def test_replace_of_the_status_needs_the_version(api, sites):
    made = await api.create(sites, site())
    await api.merge(f"{sites}/a", {"spec": {"theme": "light"}})
    late = await api.replace(f"{sites}/a/status", {**made.body, "status": {"phase": "Ready"}})
    assert late.refusal == (409, "Conflict")


async def test_the_status_is_validated(api, sites):
    await api.create(sites, site())
    refused = await api.merge(f"{sites}/a/status", {"status": {"phase": 1}})
    # The path in the message is relative to the status.
    problem = 'Invalid value: "integer": phase in body must be of type string: "integer"'
    assert refused.causes == {("status.phase", TYPE, problem)}


async def test_the_generation_counts_changes_of_the_spec_only(api, sites):
    made = await api.create(sites, site())
    labelled = await api.merge(f"{sites}/a", {"metadata": {"labels": {"l": "x"}}})
    ready = await api.merge(f"{sites}/a/status", {"status": {"phase": "Ready"}})
    changed = await api.merge(f"{sites}/a", {"spec": {"theme": "light"}})
    assert [answer.meta["generation"] for answer in (made, labelled, ready, changed)] == [1, 1, 1, 2]


async def test_the_generation_cannot_be_set(api, sites):
    assert (await api.create(sites, site(metadata={"generation": 7}))).meta["generation"] == 1
    assert (await api.merge(f"{sites}/a", {"metadata": {"generation": 9}})).meta["generation"] == 1


async def test_status_and_object_have_managers_of_their_own(api, sites):
    await api.create(sites, site())
    changed = await api.merge(f"{sites}/a/status", {"status": {"phase": "Ready"}})
    subresources = [entry.get("subresource", "") for entry in changed.meta["managedFields"]]
    assert subresources == ["", "status"]


async def test_the_status_can_be_read_alone(api, sites):
    made = await api.create(sites, site())
    assert (await api.get(f"{sites}/a/status")).body == made.body


async def test_a_scale_that_is_not_declared_is_not_found(api, sites):
    await api.create(sites, site())
    assert (await api.get(f"{sites}/a/scale")).refusal == (404, "NotFound")


async def test_items_of_custom_lists_have_their_kind(api, sites):
    await api.create(sites, site())
    listed = await api.get(sites)
    assert listed["kind"] == "SiteList"
    assert listed["items"][0]["kind"] == "Site"
