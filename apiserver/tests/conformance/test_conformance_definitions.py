"""CustomResourceDefinitions: their rules and their lifecycle."""

import pytest
from conformance_api import install, until
from conformance_kinds import DEFINITIONS, definition, site


@pytest.fixture
def group(name):
    """Returns a group that no other test case uses."""
    return f"{name}.example.com"


def condition(answer, type_):
    return next((c for c in answer["status"].get("conditions") or () if c["type"] == type_), None)


async def test_create_fills_in_names_and_stored_versions(api, group):
    made = await api.create(DEFINITIONS, definition(group))
    assert made.status == 201
    assert made["spec"]["names"] == {
        "plural": "sites",
        "singular": "site",
        "kind": "Site",
        "listKind": "SiteList",
    }
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["status"]["storedVersions"] == ["v1"]
    assert made.meta["generation"] == 1


async def test_the_kind_is_established(api, group):
    await api.create(DEFINITIONS, definition(group))
    path = f"{DEFINITIONS}/sites.{group}"

    async def established():
        found = condition(await api.get(path), "Established")
        return bool(found) and found["status"] == "True"

    await until(established)
    done = await api.get(path)
    assert condition(done, "Established")["reason"] == "InitialNamesAccepted"
    assert condition(done, "NamesAccepted")["status"] == "True"
    assert done["status"]["acceptedNames"] == done["spec"]["names"]


async def test_before_its_definition_a_kind_is_not_served(api, group):
    answer = await api.get(f"/apis/{group}/v1/sites")
    assert (answer.status, answer.text) == (404, "404 page not found\n")


async def test_the_kind_is_discovered(api, group):
    await install(api, definition(group))

    async def listed():
        answer = await api.get(f"/apis/{group}/v1")
        return answer.status == 200 and bool(answer["resources"])

    await until(listed)
    resources = {entry["name"]: entry for entry in (await api.get(f"/apis/{group}/v1"))["resources"]}
    assert set(resources) == {"sites", "sites/status"}
    assert resources["sites"]["kind"] == "Site"
    assert resources["sites"]["namespaced"] is True
    assert resources["sites"]["singularName"] == "site"
    assert (await api.get(f"/apis/{group}"))["preferredVersion"]["version"] == "v1"


async def test_deletion_takes_the_objects_with_it(api, group, ns):
    await install(api, definition(group))
    path = f"/apis/{group}/v1/namespaces/{ns}/sites"
    await api.create(path, {**site(), "apiVersion": f"{group}/v1"})
    kept = await api.delete(f"{DEFINITIONS}/sites.{group}")
    assert kept.meta["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]

    async def gone():
        found = await api.get(f"{DEFINITIONS}/sites.{group}")
        return found.status == 404 and (await api.get(path)).status == 404

    await until(gone)


async def test_a_cluster_scoped_kind_takes_no_namespace(api, group, ns):
    body = definition(group, "planets", "Planet")
    body["spec"]["scope"] = "Cluster"
    await install(api, body)
    planet = {
        "apiVersion": f"{group}/v1",
        "kind": "Planet",
        "metadata": {"name": "a"},
        "spec": {"theme": "red"},
    }
    made = await api.create(f"/apis/{group}/v1/planets", planet)
    assert "namespace" not in made.meta
    assert (await api.get(f"/apis/{group}/v1/namespaces/{ns}/planets")).status == 404


async def test_the_name_is_plural_and_group(api, group):
    refused = await api.create(DEFINITIONS, {**definition(group), "metadata": {"name": f"x.{group}"}})
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {
        (
            "metadata.name",
            "FieldValueInvalid",
            f'Invalid value: "x.{group}": must be spec.names.plural+"."+spec.group',
        )
    }


async def test_a_scope_is_cluster_or_namespaced(api, group):
    body = definition(group)
    body["spec"]["scope"] = "X"
    refused = await api.create(DEFINITIONS, body)
    assert refused.causes == {
        (
            "spec.scope",
            "FieldValueNotSupported",
            'Unsupported value: "X": supported values: "Cluster", "Namespaced"',
        )
    }


async def test_names_are_required(api, group):
    body = definition(group)
    body["spec"]["names"] = {}
    refused = await api.create(DEFINITIONS, body)
    names = {f"spec.names.{name}" for name in ("plural", "singular", "kind", "listKind")}
    assert refused.fields == {"metadata.name", *names}


async def test_a_version_needs_a_schema(api, group):
    body = definition(group)
    del body["spec"]["versions"][0]["schema"]
    refused = await api.create(DEFINITIONS, body)
    assert refused.causes == {
        ("spec.versions[0].schema.openAPIV3Schema", "FieldValueRequired", "Required value")
    }


async def test_one_version_is_the_storage_version(api, group):
    body = definition(group)
    body["spec"]["versions"][0]["storage"] = False
    refused = await api.create(DEFINITIONS, body)
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"spec.versions", "status.storedVersions"}


async def test_a_field_needs_a_type(api, group):
    body = definition(group)
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["x"] = {}
    refused = await api.create(DEFINITIONS, body)
    assert refused.causes == {
        (
            "spec.validation.openAPIV3Schema.properties[x].type",
            "FieldValueRequired",
            "Required value: must not be empty for specified object fields",
        )
    }


async def test_the_plural_is_immutable(api, group):
    await install(api, definition(group))
    path = f"{DEFINITIONS}/sites.{group}"
    refused = await api.merge(path, {"spec": {"names": {"kind": "Other"}, "scope": "Cluster"}})
    assert refused.refusal == (422, "Invalid")
    assert "spec.scope" in refused.fields


async def test_a_new_schema_holds_for_what_is_written_after(api, group, ns):
    body = definition(group)
    await install(api, body)
    path = f"/apis/{group}/v1/namespaces/{ns}/sites"
    green = {**site(spec={"theme": "dark", "color": "green"}), "apiVersion": f"{group}/v1"}
    assert (await api.create(path, green)).refusal == (422, "Invalid")
    versions = body["spec"]["versions"]
    colors = versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]
    colors["enum"].append("green")
    await api.merge(f"{DEFINITIONS}/sites.{group}", {"spec": {"versions": versions}})

    async def accepted():
        return (await api.create(path, green, dryRun="All")).status == 201

    await until(accepted)


async def test_a_second_version_serves_the_same_objects(api, group, ns):
    body = definition(group)
    body["spec"]["versions"].append({**body["spec"]["versions"][0], "name": "v2", "storage": False})
    await install(api, body)
    await until_served(api, f"/apis/{group}/v2/sites")
    made = await api.create(
        f"/apis/{group}/v1/namespaces/{ns}/sites", {**site(), "apiVersion": f"{group}/v1"}
    )
    seen = await api.get(f"/apis/{group}/v2/namespaces/{ns}/sites/a")
    assert seen["apiVersion"] == f"{group}/v2"
    assert (seen["kind"], seen["spec"], seen.version) == ("Site", made["spec"], made.version)


async def until_served(api, path):
    async def served():
        return (await api.get(path)).status == 200

    await until(served)


async def test_a_watch_sees_its_objects_deleted_with_their_definition_and_ends(api, group, ns):
    await install(api, definition(group))
    path = f"/apis/{group}/v1/namespaces/{ns}/sites"
    await until_served(api, path)
    made = await api.create(path, {**site("a"), "apiVersion": f"{group}/v1"})
    async with api.watch(path, resourceVersion=made.version) as events:
        await api.delete(f"{DEFINITIONS}/sites.{group}")
        ended = await events.all()
    assert [event["type"] for event in ended] == ["DELETED"]
    assert ended[0]["object"]["metadata"]["name"] == "a"


async def test_a_new_schema_ends_watches_and_expires_their_versions(api, group, ns):
    """Watchers list again, and get objects under the new schema."""
    await install(api, definition(group))
    path = f"/apis/{group}/v1/namespaces/{ns}/sites"
    await until_served(api, path)
    made = await api.create(path, {**site("a"), "apiVersion": f"{group}/v1"})
    async with api.watch(path, resourceVersion=made.version) as events:
        patch = {"spec": {"versions": definition(group)["spec"]["versions"]}}
        schema = patch["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["more"] = {"type": "string"}
        await api.merge(f"{DEFINITIONS}/sites.{group}", patch)
        assert await events.all() == []

    async def expired():
        again = await api.get(path, watch="true", resourceVersion=made.version, timeoutSeconds=1)
        return again.status == 200 and '"code":410' in again.text

    await until(expired)
    assert [item["metadata"]["name"] for item in (await api.get(path))["items"]] == ["a"]


async def test_a_definition_that_says_the_same_ends_no_watch(api, group, ns):
    await install(api, definition(group))
    path = f"/apis/{group}/v1/namespaces/{ns}/sites"
    await until_served(api, path)
    first = await api.create(path, {**site("a"), "apiVersion": f"{group}/v1"})
    async with api.watch(path, resourceVersion=first.version) as events:
        await api.merge(f"{DEFINITIONS}/sites.{group}", {"metadata": {"labels": {"a": "b"}}})
        await api.create(path, {**site("b"), "apiVersion": f"{group}/v1"})
        assert await events.take(1) == [("ADDED", "b")]
