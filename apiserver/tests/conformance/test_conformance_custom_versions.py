"""Objects of a kind whose schema has changed, or that has several; stored objects are read through the current one."""

import pytest
from conformance_api import until
from conformance_kinds import DEFINITIONS
from conformance_schemas import Things, defined, fields

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.fixture
def things(api, name, ns):
    return Things(api, f"{name}.example.com", ns)


async def test_a_new_default_is_seen_in_old_objects(things):
    await things.define(fields(a=STRING))
    made = await things.create({"a": "x"})
    await things.redefine(fields(a=STRING, b={"type": "string", "default": "new"}))
    read = await things.api.get(f"{things.path}/a")
    assert (read["spec"], read.version) == ({"a": "x", "b": "new"}, made.version)
    listed = await things.api.get(things.path)
    assert [item["spec"] for item in listed["items"]] == [{"a": "x", "b": "new"}]


async def test_a_field_that_is_gone_is_not_seen_in_old_objects(things):
    await things.define(fields(a=STRING, b=STRING))
    await things.create({"a": "x", "b": "y"})
    await things.redefine(fields(a=STRING))
    assert (await things.api.get(f"{things.path}/a"))["spec"] == {"a": "x"}


async def test_a_field_that_comes_back_is_seen_again(things):
    await things.define(fields(a=STRING, b=STRING))
    await things.create({"a": "x", "b": "y"})
    await things.redefine(fields(a=STRING))
    versions = defined(things.group, fields(a=STRING, b=STRING))["spec"]["versions"]
    await things.api.merge(things.definition, {"spec": {"versions": versions}})

    async def again():
        return (await things.api.get(f"{things.path}/a"))["spec"] == {"a": "x", "b": "y"}

    await until(again)


async def test_an_update_that_changes_nothing_else_stores_the_default(things):
    await things.define(fields(a=STRING))
    made = await things.create({"a": "x"})
    await things.redefine(fields(a=STRING, b={"type": "string", "default": "new"}))
    changed = await things.merge({"a": "y"})
    assert changed["spec"] == {"a": "y", "b": "new"}
    assert changed.version != made.version


async def test_an_object_in_a_version_that_is_gone_is_lost_until_that_is_back(things):
    body = defined(things.group, fields(a=STRING))
    (old,) = body["spec"]["versions"]
    both = [{**old, "storage": False}, {**old, "name": "v2"}]
    await things.define(fields(a=STRING))
    await things.create({"a": "x"})
    newer = f"{things.path.replace('/v1/', '/v2/')}/a"
    await things.api.merge(things.definition, {"spec": {"versions": both}})
    await until(lambda: serves(things.api, newer))
    await things.api.merge(f"{things.definition}/status", {"status": {"storedVersions": ["v2"]}})
    removed = await things.api.merge(things.definition, {"spec": {"versions": both[1:]}})
    assert removed.status == 200, removed.text

    async def is_lost():
        return (await things.api.get(newer)).status == 500

    await until(is_lost)
    told = f"request to convert CR from an invalid group/version: {things.group}/v1"
    for refused in (await things.api.get(newer), await things.api.delete(newer)):
        assert refused.refusal == (500, "InternalError")
        assert refused.message.endswith(told)
    await things.api.merge(things.definition, {"spec": {"versions": both}})
    await until(lambda: serves(things.api, newer))
    assert (await things.api.get(newer))["spec"] == {"a": "x"}


async def test_every_version_reads_by_its_own_schema(things):
    body = defined(things.group, fields(a=STRING, b=STRING))
    second = defined(things.group, fields(a=STRING, c={"type": "integer", "default": 3}))["spec"]["versions"][
        0
    ]
    body["spec"]["versions"].append({**second, "name": "v2", "storage": False})
    await things.api.create(DEFINITIONS, body)
    newer = things.path.replace("/v1/", "/v2/")
    for path in (things.path, newer):
        await until(lambda path=path: serves(things.api, path))
    await things.create({"a": "x", "b": "y"})
    # Defaults are those of the storage version.
    assert (await things.api.get(f"{newer}/a"))["spec"] == {"a": "x"}
    assert (await things.api.get(f"{things.path}/a"))["spec"] == {"a": "x", "b": "y"}
    made = await things.api.create(
        newer,
        {"apiVersion": f"{things.group}/v2", "kind": "Thing", "metadata": {"name": "b"}, "spec": {"c": 4}},
    )
    # Fields that the storage version does not know are not stored.
    assert made["spec"] == {}
    assert (await things.api.get(f"{things.path}/b"))["spec"] == {}


async def serves(api, path):
    return (await api.get(path)).status == 200


async def test_a_field_that_the_version_of_another_manager_lacks(things):
    """Without a webhook, conversion keeps all fields, and who owns which can be told only in the manager's version."""
    body = defined(things.group, fields(a=STRING))
    [second] = defined(things.group, fields(a=STRING, c=STRING))["spec"]["versions"]
    body["spec"]["versions"][0]["storage"] = False
    body["spec"]["versions"].append({**second, "name": "v2"})
    await things.api.create(DEFINITIONS, body)
    newer = things.path.replace("/v1/", "/v2/")
    for path in (things.path, newer):
        await until(lambda path=path: serves(things.api, path))
    await things.create({"a": "x"})
    config = {"apiVersion": f"{things.group}/v2", "kind": "Thing", "metadata": {"name": "a"}}
    known = await things.api.apply(f"{newer}/a", {**config, "spec": {"a": "y"}}, force=True)
    assert known.status == 200
    refused = await things.api.apply(f"{newer}/a", {**config, "spec": {"a": "y", "c": "z"}}, force=True)
    assert refused.refusal == (500, None)
    assert refused.message.endswith(".spec.c: field not declared in schema")
    merged = await things.api.merge(f"{newer}/a", {"spec": {"c": "z"}})
    assert merged["spec"] == {"a": "y", "c": "z"}
    assert merged.meta["managedFields"] == known.meta["managedFields"]


async def test_selectable_fields_select(things):
    await things.define(
        fields(a=STRING, n=INTEGER), selectableFields=[{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.n"}]
    )
    await things.create({"a": "x", "n": 1}, "one")
    await things.create({"a": "y", "n": 1}, "two")

    async def found(selector):
        listed = await things.api.get(things.path, fieldSelector=selector)
        return [item["metadata"]["name"] for item in listed["items"]]

    assert await found("spec.a=x") == ["one"]
    assert await found("spec.n=1,spec.a!=x") == ["two"]
    refused = await things.api.get(things.path, fieldSelector="spec.b=x")
    assert refused.message == "field label not supported: spec.b"

    async def told():
        document = await things.api.get(f"/openapi/v3/apis/{things.group}/v1")
        schemas = document["components"]["schemas"] if document.status == 200 else {}
        return [{"fieldPath": "spec.a"}, {"fieldPath": "spec.n"}] in [
            schema.get("x-kubernetes-selectable-fields") for schema in schemas.values()
        ]

    await until(told)


async def test_a_whole_number_is_an_integer(things):
    await things.define(fields(n=INTEGER, x={"type": "number"}))
    made = await things.api.create(
        things.path,
        f'{{"apiVersion":"{things.group}/v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{{"n":3.0,"x":2.0}}}}'.encode(),
    )
    assert made.status == 201
    assert '"n":3,' in (await things.api.get(f"{things.path}/a")).text


@pytest.mark.parametrize(
    ("annotation", "status", "reason", "message"),
    [
        (
            "https://github.com/a/b",
            "True",
            "ApprovedAnnotation",
            "approved in https://github.com/a/b",
        ),
        ("unapproved, a test", "False", "UnapprovedAnnotation", 'not approved: "unapproved, a test"'),
    ],
)
async def test_the_approval_of_a_group_of_the_community_is_a_condition(
    things, name, annotation, status, reason, message
):
    group = f"{name}.k8s.io"
    body = defined(group, fields())
    body["metadata"]["annotations"] = {"api-approved.kubernetes.io": annotation}
    await things.api.create(DEFINITIONS, body)

    async def condition():
        found = (await things.api.get(f"{DEFINITIONS}/things.{group}"))["status"].get("conditions") or ()
        return next((c for c in found if c["type"] == "KubernetesAPIApprovalPolicyConformant"), None)

    async def told():
        return await condition() is not None

    await until(told)
    made = await condition()
    assert (made["status"], made["reason"], made["message"]) == (status, reason, message)
