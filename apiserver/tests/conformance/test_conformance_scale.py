"""The subresource scale of workloads: what `kubectl scale` and autoscalers use."""

import pytest
from conformance_api import install, owned
from conformance_kinds import DEFINITIONS
from conformance_workloads import NOT_NEGATIVE, invalid, required, workload

PLURALS = ("deployments", "replicasets", "statefulsets")
REPLICAS = {"f:spec": {"f:replicas": {}}}


@pytest.fixture
def apps(ns):
    return f"/apis/apps/v1/namespaces/{ns}"


@pytest.fixture
async def deployment(api, apps):
    """The path of a Deployment of two replicas."""
    await api.create(f"{apps}/deployments", workload(replicas=2), fieldManager="one")
    return f"{apps}/deployments/a"


def scaled(replicas, **meta):
    return {"metadata": {"name": "a", **meta}, "spec": {"replicas": replicas}}


@pytest.mark.parametrize("plural", PLURALS)
async def test_a_scale_tells_what_is_wanted_and_what_there_is(api, apps, plural):
    made = await api.create(f"{apps}/{plural}", workload(replicas=2))
    await api.merge(f"{apps}/{plural}/a/status", {"status": {"replicas": 1}})
    scale = await api.get(f"{apps}/{plural}/a/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=a"}
    assert set(scale.meta) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
    assert scale.meta["uid"] == made.meta["uid"]


async def test_the_selector_of_a_scale_is_one_for_queries(api, apps):
    expressions = [
        {"key": "app", "operator": "In", "values": ["b", "a"]},
        {"key": "x", "operator": "DoesNotExist"},
    ]
    await api.create(f"{apps}/deployments", workload(selector={"matchExpressions": expressions}))
    scale = await api.get(f"{apps}/deployments/a/scale")
    assert scale["status"]["selector"] == "app in (a,b),!x"


@pytest.mark.parametrize("plural", PLURALS)
async def test_a_patch_of_the_scale_changes_the_replicas_and_counts(api, apps, plural):
    await api.create(f"{apps}/{plural}", workload())
    patched = await api.merge(f"{apps}/{plural}/a/scale", {"spec": {"replicas": 3}})
    assert patched["spec"] == {"replicas": 3}
    stored = await api.get(f"{apps}/{plural}/a")
    assert stored["spec"]["replicas"] == 3
    assert stored.meta["generation"] == 2
    assert stored.version == patched.version


async def test_a_json_patch_of_the_scale(api, deployment):
    patched = await api.json_patch(
        f"{deployment}/scale", {"op": "replace", "path": "/spec/replicas", "value": 4}
    )
    assert patched["spec"] == {"replicas": 4}


async def test_a_replace_of_the_scale(api, deployment):
    replaced = await api.replace(f"{deployment}/scale", scaled(5))
    assert (replaced["kind"], replaced["spec"]) == ("Scale", {"replicas": 5})
    assert (await api.get(deployment))["spec"]["replicas"] == 5


async def test_nothing_wanted_is_left_out(api, deployment):
    replaced = await api.replace(f"{deployment}/scale", scaled(0))
    assert replaced["spec"] == {}
    assert (await api.get(deployment))["spec"]["replicas"] == 0


async def test_a_replace_of_another_version_is_a_conflict(api, deployment):
    refused = await api.replace(f"{deployment}/scale", scaled(5, resourceVersion="1"))
    assert refused.refusal == (409, "Conflict")
    assert refused.details == {"name": "a", "group": "apps", "kind": "deployments"}


async def test_a_replace_of_the_live_version_succeeds(api, deployment):
    scale = await api.get(f"{deployment}/scale")
    assert (await api.replace(f"{deployment}/scale", scaled(5, resourceVersion=scale.version))).status == 200


async def test_a_replace_of_another_uid_is_a_conflict(api, deployment):
    assert (await api.replace(f"{deployment}/scale", scaled(5, uid="x"))).refusal == (409, "Conflict")


async def test_a_replace_names_the_workload(api, deployment):
    other = await api.replace(f"{deployment}/scale", {"metadata": {"name": "b"}, "spec": {"replicas": 1}})
    assert other.refusal == (400, "BadRequest")
    assert other.message == "the name of the object (b) does not match the name on the URL (a)"
    nameless = await api.replace(f"{deployment}/scale", {"spec": {"replicas": 1}})
    assert nameless.refusal == (400, "BadRequest")


async def test_fewer_than_none_is_invalid(api, deployment):
    refused = await api.replace(f"{deployment}/scale", scaled(-1))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {invalid("spec.replicas", "-1", NOT_NEGATIVE)}
    assert refused.details["kind"] == "Scale"
    assert refused.details["group"] == "autoscaling"


async def test_a_number_as_text_is_a_bad_request(api, deployment):
    refused = await api.replace(f"{deployment}/scale", scaled("x"))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal string into Go struct field '
        "ScaleSpec.spec.replicas of type int32"
    )


async def test_the_status_of_a_scale_cannot_be_written(api, deployment):
    patched = await api.merge(
        f"{deployment}/scale", {"status": {"replicas": 9}, "metadata": {"labels": {"a": "b"}}}
    )
    assert patched["status"]["replicas"] == 0
    assert "labels" not in (await api.get(deployment)).meta


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_scale_is_neither_created_nor_deleted(api, deployment, method):
    assert (await api.call(method, f"{deployment}/scale", {})).refusal == (405, "MethodNotAllowed")


async def test_of_what_is_missing_there_is_no_scale(api, apps):
    for answer in (
        await api.get(f"{apps}/deployments/a/scale"),
        await api.replace(f"{apps}/deployments/a/scale", scaled(1)),
        await api.merge(f"{apps}/deployments/a/scale", {"spec": {"replicas": 1}}),
    ):
        assert answer.refusal == (404, "NotFound")
        assert answer.message == 'deployments.apps "a" not found'


async def test_daemon_sets_have_no_scale(api, apps):
    await api.create(f"{apps}/daemonsets", workload())
    assert (await api.get(f"{apps}/daemonsets/a/scale")).refusal == (404, "NotFound")


async def test_who_scales_owns_the_replicas(api, deployment):
    await api.merge(f"{deployment}/scale", {"spec": {"replicas": 3}}, fieldManager="two")
    managers = owned(await api.get(deployment))
    assert managers["two", "Update", "scale"] == REPLICAS
    assert "f:replicas" not in managers["one", "Update", ""]["f:spec"]


async def test_who_scales_to_what_there_is_owns_nothing(api, deployment):
    await api.merge(f"{deployment}/scale", {"spec": {"replicas": 2}}, fieldManager="two")
    assert set(owned(await api.get(deployment))) == {("one", "Update", "")}


async def test_an_apply_of_a_scale_meets_other_scalers(api, deployment):
    await api.merge(f"{deployment}/scale", {"spec": {"replicas": 3}}, fieldManager="two")
    config = {"apiVersion": "autoscaling/v1", "kind": "Scale", **scaled(7)}
    refused = await api.apply(f"{deployment}/scale", config, "three")
    assert refused.refusal == (409, "Conflict")
    problem = 'conflict with "two" with subresource "scale" using autoscaling/v1'
    assert refused.causes == {(".spec.replicas", "FieldManagerConflict", problem)}
    forced = await api.apply(f"{deployment}/scale", config, "three", force=True)
    assert forced["spec"] == {"replicas": 7}
    managers = owned(await api.get(deployment))
    assert managers["three", "Apply", "scale"] == REPLICAS
    assert ("two", "Update", "scale") not in managers


async def test_an_apply_of_the_workload_meets_who_scales(api, deployment):
    await api.merge(f"{deployment}/scale", {"spec": {"replicas": 3}}, fieldManager="two")
    config = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"replicas": 8},
    }
    refused = await api.apply(deployment, config, "three")
    assert refused.refusal == (409, "Conflict")
    ((field, _, message),) = refused.causes
    assert (field, message) == (
        ".spec.replicas",
        'conflict with "two" with subresource "scale" using apps/v1',
    )


async def test_a_dry_run_scales_nothing(api, deployment):
    answer = await api.merge(f"{deployment}/scale", {"spec": {"replicas": 9}}, dryRun="All")
    assert answer["spec"] == {"replicas": 9}
    assert (await api.get(deployment))["spec"]["replicas"] == 2


GROUP = "scale.example.com"
PATHS = {
    "specReplicasPath": ".spec.count",
    "statusReplicasPath": ".status.count",
    "labelSelectorPath": ".status.selector",
}


def definition(scale, plural="herds"):
    number, text = {"type": "integer", "maximum": 10}, {"type": "string"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"count": number}},
            "status": {"type": "object", "properties": {"count": number, "selector": text}},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"plural": plural, "kind": "Herd"}
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture
async def herds(api, ns):
    await install(api, definition(PATHS))
    return f"/apis/{GROUP}/v1/namespaces/{ns}/herds"


def herd(**spec):
    return {"apiVersion": f"{GROUP}/v1", "kind": "Herd", "metadata": {"name": "a"}, "spec": spec}


def scale_of_herd(replicas):
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", **scaled(replicas)}


async def test_a_definition_says_where_the_replicas_are(api, herds):
    await api.create(herds, herd(count=2))
    await api.merge(f"{herds}/a/status", {"status": {"count": 1, "selector": "x=y"}})
    scale = await api.get(f"{herds}/a/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "x=y"}


async def test_a_custom_resource_is_scaled(api, herds):
    await api.create(herds, herd(count=2))
    patched = await api.merge(f"{herds}/a/scale", {"spec": {"replicas": 3}}, fieldManager="two")
    assert patched["spec"] == {"replicas": 3}
    replaced = await api.replace(f"{herds}/a/scale", scale_of_herd(4), fieldManager="two")
    assert replaced["spec"] == {"replicas": 4}
    stored = await api.get(f"{herds}/a")
    assert stored["spec"] == {"count": 4}
    assert stored.meta["generation"] == 3
    assert owned(stored)["two", "Update", "scale"] == {"f:spec": {"f:count": {}}}


async def test_a_custom_resource_that_wants_nothing_has_no_scale_but_can_be_given_one(api, herds):
    await api.create(herds, herd())
    refused = await api.get(f"{herds}/a/scale")
    assert refused.refusal == (500, "InternalError")
    problem = 'the spec replicas field ".spec.count" does not exist'
    assert refused.message == f"Internal error occurred: {problem}"
    given = await api.replace(f"{herds}/a/scale", scale_of_herd(1))
    assert given["spec"] == {"replicas": 1}


async def test_the_schema_holds_for_scales(api, herds):
    await api.create(herds, herd(count=2))
    many = await api.replace(f"{herds}/a/scale", scale_of_herd(40))
    problem = "spec.count in body should be less than or equal to 10"
    assert many.causes == {invalid("spec.count", "40", problem)}
    few = await api.replace(f"{herds}/a/scale", scale_of_herd(-4))
    assert few.causes == {invalid(".spec.count", "-4", "should be a non-negative integer")}


async def test_a_scale_of_a_custom_resource_cannot_be_applied(api, herds):
    await api.create(herds, herd(count=2))
    refused = await api.apply(f"{herds}/a/scale", scale_of_herd(4), "three", force=True)
    assert refused.refusal == (500, None)
    assert refused.message == (
        "failed to convert new object (/a; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an "
        "invalid group/version: autoscaling/v1"
    )


async def test_an_apply_of_a_custom_resources_scale_meets_those_who_own_it(api, herds):
    await api.create(herds, herd(count=2))
    refused = await api.apply(f"{herds}/a/scale", scale_of_herd(4), "three")
    assert refused.refusal == (409, "Conflict")
    told = 'conflict with "conformance" using autoscaling/v1'
    assert refused.message == f"Apply failed with 1 conflict: {told}: .spec.replicas"
    assert refused.causes == {(".spec.replicas", "FieldManagerConflict", told)}
    same = await api.apply(f"{herds}/a/scale", scale_of_herd(2), "three")
    assert (same.status, same["spec"]) == (200, {"replicas": 2})


async def test_an_apply_of_a_scale_that_nobody_owns_is_refused_for_the_resource(api, herds):
    await api.create(herds, herd())
    refused = await api.apply(f"{herds}/a/scale", scale_of_herd(4), "three")
    assert (refused.status, refused.body.get("reason")) == (500, None)
    assert refused.message == (
        "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) "
        "to proper version: request to convert CR to an invalid group/version: autoscaling/v1"
    )
    missing = await api.apply(f"{herds}/missing/scale", scale_of_herd(4), "three")
    assert missing.refusal == (404, "NotFound")


PATH = "spec.subresources.scale"


@pytest.mark.parametrize(
    ("scale", "causes"),
    [
        ({}, {required(f"{PATH}.specReplicasPath"), required(f"{PATH}.statusReplicasPath")}),
        (
            {
                "specReplicasPath": "spec.count",
                "statusReplicasPath": ".foo.count",
                "labelSelectorPath": ".x",
            },
            {
                invalid(
                    f"{PATH}.specReplicasPath", '"spec.count"', "must be a simple json path starting with ."
                ),
                invalid(f"{PATH}.statusReplicasPath", '".foo.count"', "should be a json path under .status"),
                invalid(
                    f"{PATH}.labelSelectorPath", '".x"', "should be a json path under either .spec or .status"
                ),
            },
        ),
        (
            {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status"},
            {invalid(f"{PATH}.statusReplicasPath", '".status"', "should be a json path under .status")},
        ),
    ],
)
async def test_what_the_paths_of_a_scale_must_be(api, scale, causes):
    refused = await api.create(DEFINITIONS, definition(scale, "flocks"))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes
