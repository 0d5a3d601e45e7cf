"""The subresource scale of custom resources: the paths that a definition may name, and the values there."""

import pytest
from conformance_schemas import Things, fields, shared

INVALID, REQUIRED = "FieldValueInvalid", "FieldValueRequired"
INTEGER, STRING = {"type": "integer"}, {"type": "string"}
PATHS = {
    "specReplicasPath": ".spec.size.wanted",
    "statusReplicasPath": ".status.size",
    "labelSelectorPath": ".status.selector",
}
SCHEMA = fields(
    spec=fields(size=fields(wanted=INTEGER)), status=fields(size=INTEGER, selector=STRING, other=STRING)
)


@pytest.fixture
def things(api, name, ns):
    return Things(api, f"{name}.example.com", ns)


@pytest.fixture
async def herds(api, ns):
    scale = {"status": {}, "scale": PATHS}
    return await shared(api, "herds", ns, fields(), schema={"openAPIV3Schema": SCHEMA}, subresources=scale)


@pytest.mark.parametrize(
    ("paths", "field", "reason", "message"),
    [
        ({"specReplicasPath": ""}, "specReplicasPath", REQUIRED, "Required value"),
        (
            {"specReplicasPath": "spec.n"},
            "specReplicasPath",
            INVALID,
            'Invalid value: "spec.n": must be a simple json path starting with .',
        ),
        (
            {"specReplicasPath": ".status.n"},
            "specReplicasPath",
            INVALID,
            'Invalid value: ".status.n": should be a json path under .spec',
        ),
        (
            {"statusReplicasPath": ".spec.n"},
            "statusReplicasPath",
            INVALID,
            'Invalid value: ".spec.n": should be a json path under .status',
        ),
        (
            {"labelSelectorPath": ".metadata.x"},
            "labelSelectorPath",
            INVALID,
            'Invalid value: ".metadata.x": should be a json path under either .spec or .status',
        ),
    ],
    ids=str,
)
async def test_where_a_scale_may_be(things, paths, field, reason, message):
    refused = await things.defining(fields(), subresources={"scale": {**PATHS, **paths}})
    assert refused.causes == {(f"spec.subresources.scale.{field}", reason, message)}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (-1, "Invalid value: -1: should be a non-negative integer"),
        (2147483648, "Invalid value: 2147483648: should be less than or equal to 2147483647"),
    ],
)
async def test_what_is_wanted_is_a_number_of_replicas(herds, wanted, message):
    refused = await herds.create({"size": {"wanted": wanted}})
    assert refused.causes == {(".spec.size.wanted", INVALID, message)}


async def test_what_there_is_is_a_number_of_replicas(herds):
    await herds.create({})
    refused = await herds.api.merge(f"{herds.path}/a/status", {"status": {"size": -1}})
    assert refused.causes == {
        (".status.size", INVALID, "Invalid value: -1: should be a non-negative integer")
    }


async def test_a_scale_is_read_from_its_paths(herds):
    await herds.create({"size": {"wanted": 3}})
    await herds.api.merge(f"{herds.path}/a/status", {"status": {"size": 2, "selector": "a=b"}})
    scale = await herds.api.get(f"{herds.path}/a/scale")
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 3},
        {"replicas": 2, "selector": "a=b"},
    )


async def test_a_scale_is_written_to_its_path(herds):
    made = await herds.create({"size": {"wanted": 3}})
    scaled = await herds.api.merge(f"{herds.path}/a/scale", {"spec": {"replicas": 5}})
    assert scaled["spec"] == {"replicas": 5}
    stored = await herds.api.get(f"{herds.path}/a")
    assert stored["spec"] == {"size": {"wanted": 5}}
    assert stored.meta["generation"] == made.meta["generation"] + 1


async def test_a_patch_of_a_missing_number_of_replicas_has_to_give_one(herds):
    await herds.create({})
    refused = await herds.api.merge(f"{herds.path}/a/scale", {"metadata": {"labels": {"a": "b"}}})
    assert refused.refusal == (400, "BadRequest")
    assert (await herds.api.get(f"{herds.path}/a"))["spec"] == {}
    scaled = await herds.api.merge(f"{herds.path}/a/scale", {"spec": {"replicas": 2}})
    assert (scaled.status, scaled["spec"]) == (200, {"replicas": 2})
    assert (await herds.api.get(f"{herds.path}/a/scale"))["spec"] == {"replicas": 2}


async def test_a_scale_below_nothing_is_refused(herds):
    await herds.create({"size": {"wanted": 3}})
    refused = await herds.api.merge(f"{herds.path}/a/scale", {"spec": {"replicas": -1}})
    assert refused.refusal == (422, "Invalid")
    assert (await herds.api.get(f"{herds.path}/a"))["spec"] == {"size": {"wanted": 3}}


async def test_a_version_without_scale_has_none(things):
    await things.define(fields())
    await things.create({})
    assert (await things.api.get(f"{things.path}/a/scale")).refusal == (404, "NotFound")
