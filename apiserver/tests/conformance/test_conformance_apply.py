"""Server-side apply and managedFields."""

import pytest
from conformance_api import APPLY, owned
from conformance_kinds import config_map, site

ONE = ("one", "Apply", "")
TWO = ("two", "Apply", "")
UPDATER = ("conformance", "Update", "")


async def test_apply_creates_what_is_missing(api, maps):
    made = await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    assert made.status == 201
    assert owned(made) == {ONE: {"f:data": {"f:a": {}}}}


async def test_apply_of_the_same_again_changes_nothing(api, maps):
    made = await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    again = await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    assert (again.status, again.body) == (200, made.body)


async def test_apply_removes_what_it_stated_before(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1", "b": "1"}))
    changed = await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    assert changed["data"] == {"a": "1"}


async def test_apply_of_nothing_more_removes_the_whole_map(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1"}, labels={"l": "x"}))
    changed = await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    assert "labels" not in changed.meta


async def test_apply_leaves_what_others_own(api, maps):
    await api.create(maps, config_map(data={"theirs": "1"}))
    changed = await api.apply(f"{maps}/a", config_map(data={"ours": "1"}))
    assert changed["data"] == {"theirs": "1", "ours": "1"}
    assert owned(changed) == {
        ONE: {"f:data": {"f:ours": {}}},
        UPDATER: {"f:data": {".": {}, "f:theirs": {}}},
    }


async def test_a_conflict_names_manager_and_field(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    refused = await api.apply(f"{maps}/a", config_map(data={"a": "2"}), "two")
    assert refused.refusal == (409, "Conflict")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert refused.causes == {(".data.a", "FieldManagerConflict", 'conflict with "one"')}


async def test_several_conflicts_are_listed(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1", "b": "1"}))
    refused = await api.apply(f"{maps}/a", config_map(data={"a": "2", "b": "2"}), "two")
    assert refused.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b'
    assert refused.fields == {".data.a", ".data.b"}


async def test_a_conflict_with_an_updater_names_its_version(api, maps):
    await api.create(maps, config_map(data={"a": "1"}))
    refused = await api.apply(f"{maps}/a", config_map(data={"a": "2"}))
    assert refused.message == 'Apply failed with 1 conflict: conflict with "conformance" using v1: .data.a'


async def test_a_conflict_changes_nothing(api, maps):
    made = await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    await api.apply(f"{maps}/a", config_map(data={"a": "2", "b": "2"}), "two")
    assert (await api.get(f"{maps}/a")).body == made.body


async def test_force_takes_the_field(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1", "b": "1"}))
    taken = await api.apply(f"{maps}/a", config_map(data={"a": "2"}), "two", force=True)
    assert taken["data"] == {"a": "2", "b": "1"}
    assert owned(taken) == {ONE: {"f:data": {"f:b": {}}}, TWO: {"f:data": {"f:a": {}}}}


async def test_the_same_value_is_shared_and_no_conflict(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    shared = await api.apply(f"{maps}/a", config_map(data={"a": "1"}), "two")
    assert owned(shared) == {ONE: {"f:data": {"f:a": {}}}, TWO: {"f:data": {"f:a": {}}}}


async def test_a_shared_field_stays_when_one_owner_gives_it_up(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    await api.apply(f"{maps}/a", config_map(data={"a": "1"}), "two")
    left = await api.apply(f"{maps}/a", config_map())
    assert left["data"] == {"a": "1"}
    assert owned(left) == {TWO: {"f:data": {"f:a": {}}}}


async def test_lists_of_metadata_are_owned_item_by_item(api, maps):
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u1"}
    made = await api.apply(
        f"{maps}/a", config_map(finalizers=["a/b"], ownerReferences=[owner], annotations={"n": "1"})
    )
    assert owned(made)[ONE] == {
        "f:metadata": {
            "f:annotations": {"f:n": {}},
            "f:finalizers": {'v:"a/b"': {}},
            "f:ownerReferences": {'k:{"uid":"u1"}': {}},
        }
    }


async def test_appliers_share_a_set(api, maps):
    await api.apply(f"{maps}/a", config_map(finalizers=["a/b"]))
    both = await api.apply(f"{maps}/a", config_map(finalizers=["c/d"]), "two")
    assert both.meta["finalizers"] == ["a/b", "c/d"]
    one_left = await api.apply(f"{maps}/a", config_map())
    assert one_left.meta["finalizers"] == ["c/d"]


async def test_an_update_takes_the_fields_it_changes(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1", "b": "1"}))
    changed = await api.merge(f"{maps}/a", {"data": {"a": "2"}})
    assert owned(changed) == {ONE: {"f:data": {"f:b": {}}}, UPDATER: {"f:data": {"f:a": {}}}}


async def test_an_update_takes_removed_fields_from_their_owner(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1", "b": "1"}))
    changed = await api.merge(f"{maps}/a", {"data": {"a": None}})
    assert owned(changed) == {ONE: {"f:data": {"f:b": {}}}}


async def test_create_owns_every_level(api, maps):
    made = await api.create(maps, config_map(data={"a": "1"}, labels={"l": "x"}))
    assert owned(made) == {
        UPDATER: {"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}
    }


async def test_create_of_nothing_owns_nothing(api, maps):
    assert "managedFields" not in (await api.create(maps, config_map())).meta


async def test_updates_of_an_object_nobody_manages_are_not_tracked(api, maps):
    await api.create(maps, config_map())
    assert "managedFields" not in (await api.merge(f"{maps}/a", {"data": {"a": "1"}})).meta


async def test_the_first_apply_gives_the_rest_to_before_first_apply(api, maps):
    await api.create(maps, config_map())
    await api.merge(f"{maps}/a", {"data": {"a": "1"}})
    applied = await api.apply(f"{maps}/a", config_map(data={"b": "2"}))
    assert owned(applied) == {
        ONE: {"f:data": {"f:b": {}}},
        ("before-first-apply", "Update", ""): {"f:data": {".": {}, "f:a": {}}},
    }


async def test_the_manager_of_an_update_can_be_named(api, maps):
    made = await api.create(maps, config_map(data={"a": "1"}), fieldManager="me")
    assert set(owned(made)) == {("me", "Update", "")}


@pytest.mark.parametrize("nothing", [[], [{}]], ids=["no entries", "one empty entry"])
async def test_managed_fields_are_reset_by(api, maps, nothing):
    await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    reset = await api.merge(f"{maps}/a", {"metadata": {"managedFields": nothing}})
    assert "managedFields" not in reset.meta
    await api.apply(f"{maps}/b", config_map(name="b", data={"a": "1"}))
    replaced = await api.replace(f"{maps}/b", config_map(name="b", managedFields=nothing, data={"a": "2"}))
    assert "managedFields" not in replaced.meta


async def test_one_empty_entry_resets_the_managed_fields_of_a_custom_resource_but_no_entries_do_not(
    api, sites
):
    applied = await api.apply(f"{sites}/a", site())
    same = await api.merge(f"{sites}/a", {"metadata": {"managedFields": []}})
    assert owned(same) == owned(applied)
    reset = await api.merge(f"{sites}/a", {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in reset.meta


async def test_a_new_object_has_managed_fields_whatever_was_sent(api, maps):
    made = await api.create(maps, config_map(managedFields=[], data={"a": "1"}))
    assert owned(made) == {("conformance", "Update", ""): {"f:data": {".": {}, "f:a": {}}}}


async def test_apply_needs_a_manager(api, maps):
    refused = await api.call("PATCH", f"{maps}/a", config_map(), content_type=APPLY)
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {
        ("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
    }


async def test_a_managers_name_has_at_most_128_characters(api, maps):
    refused = await api.create(maps, config_map(), fieldManager="x" * 129)
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"fieldManager"}


async def test_apply_takes_no_managed_fields(api, maps):
    refused = await api.apply(f"{maps}/a", config_map(managedFields=[]))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "metadata.managedFields must be nil"


@pytest.mark.parametrize("exists", [False, True], ids=["missing", "existing"])
async def test_apply_into_another_namespace_is_a_bad_request(api, maps, exists):
    if exists:
        await api.create(maps, config_map())
    refused = await api.apply(f"{maps}/a", config_map(namespace="other"))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )


async def test_a_namespace_is_dropped_from_an_apply_to_the_whole_cluster(api, name):
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1}
    path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}"
    made = await api.apply(path, {**body, "metadata": {"name": name, "namespace": "other"}})
    assert made.status == 201
    assert "namespace" not in made.meta


async def test_only_what_exists_can_be_applied_without_its_name(api, maps):
    nameless = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    refused = await api.apply(f"{maps}/a", nameless)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        "the name of the object (a based on URL) was undeterminable: name must be provided"
    )
    await api.create(maps, config_map())
    assert (await api.apply(f"{maps}/a", nameless))["data"] == {"a": "1"}


async def test_apply_under_another_name_is_a_bad_request(api, maps):
    assert (await api.apply(f"{maps}/a", config_map("b"))).refusal == (400, "BadRequest")


@pytest.mark.parametrize("fields", [{"apiVersion": "v2"}, {"kind": "Secret"}, {"kind": None}], ids=str)
async def test_apply_of_another_kind_is_a_bad_request(api, maps, fields):
    body = {name: value for name, value in {**config_map(), **fields}.items() if value is not None}
    refused = await api.apply(f"{maps}/a", body)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.startswith("invalid object type: /")


async def test_apply_with_an_old_version_is_a_conflict(api, maps):
    await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    refused = await api.apply(f"{maps}/a", config_map(data={"a": "2"}, resourceVersion="1"))
    assert refused.refusal == (409, "Conflict")


async def test_apply_takes_yaml(api, maps):
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  when: '2001-01-01'\n"
    made = await api.apply(f"{maps}/a", body)
    assert made["data"] == {"when": "2001-01-01"}


async def test_broken_yaml_is_a_bad_request(api, maps):
    refused = await api.apply(f"{maps}/a", b"a: [")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.startswith("error encoding patch: ")


async def test_an_undeclared_field_of_an_apply_is_refused(api, maps):
    refused = await api.apply(f"{maps}/a", {**config_map(), "bogus": 1})
    assert refused.refusal == (500, None)
    assert refused.message.endswith(".bogus: field not declared in schema")


async def test_an_apply_with_two_items_of_one_key_is_refused(api, sites):
    ports = [{"name": "a", "port": 1}, {"name": "a", "port": 1}]
    refused = await api.apply(f"{sites}/a", site(spec={"theme": "dark", "ports": ports}))
    assert refused.refusal == (500, None)
    assert refused.message.endswith('.spec.ports: duplicate entries for key [name="a"]')
    refused = await api.apply(
        f"{sites}/a", site(spec={"theme": "dark", "tags": ["x", "y", "x", "x"], "ports": ports})
    )
    # In the order of Go's maps, which is random.
    assert sorted(refused.message.partition("errors:")[2].split("\n  ")) == [
        "",
        '.spec.ports: duplicate entries for key [name="a"]',
        '.spec.tags: duplicate entries for key [="x"]',
        '.spec.tags: duplicate entries for key [="x"]',
    ]


async def test_a_dry_run_applies_nothing(api, maps):
    told = await api.apply(f"{maps}/a", config_map(data={"a": "1"}), dryRun="All")
    assert (told.status, told["data"]) == (201, {"a": "1"})
    assert (await api.get(f"{maps}/a")).status == 404


async def test_apply_to_a_missing_namespace_is_not_found(api, name):
    refused = await api.apply(f"/api/v1/namespaces/{name}-none/configmaps/a", config_map())
    assert refused.refusal == (404, "NotFound")


async def test_lists_of_type_map_are_owned_by_key(api, sites):
    spec = {"theme": "dark", "ports": [{"name": "a", "port": 1}], "tags": ["x"], "list": ["l"]}
    made = await api.apply(f"{sites}/a", site(spec=spec))
    assert owned(made)[ONE] == {
        "f:spec": {
            "f:theme": {},
            "f:ports": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:port": {}}},
            "f:tags": {'v:"x"': {}},
            "f:list": {},
        }
    }


async def test_appliers_add_items_to_a_list_of_type_map(api, sites):
    await api.apply(f"{sites}/a", site(spec={"theme": "dark", "ports": [{"name": "a", "port": 1}]}))
    both = await api.apply(
        f"{sites}/a", site(spec={"theme": "dark", "ports": [{"name": "b", "port": 2}]}), "two"
    )
    assert both["spec"]["ports"] == [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    left = await api.apply(f"{sites}/a", site(spec={"theme": "dark"}))
    assert left["spec"]["ports"] == [{"name": "b", "port": 2}]


async def test_a_conflict_inside_a_list_names_the_item(api, sites):
    await api.apply(f"{sites}/a", site(spec={"theme": "dark", "ports": [{"name": "a", "port": 1}]}))
    spec = {"theme": "dark", "ports": [{"name": "a", "port": 2}]}
    refused = await api.apply(f"{sites}/a", site(spec=spec), "two")
    assert refused.fields == {'.spec.ports[name="a"].port'}


async def test_an_atomic_list_is_replaced_and_fought_over_as_a_whole(api, sites):
    await api.apply(f"{sites}/a", site(spec={"theme": "dark", "list": ["a"]}))
    refused = await api.apply(f"{sites}/a", site(spec={"theme": "dark", "list": ["a", "b"]}), "two")
    assert refused.fields == {".spec.list"}


async def test_fields_without_a_schema_are_granular_maps(api, sites):
    made = await api.apply(f"{sites}/a", site(spec={"theme": "dark", "free": {"x": {"y": 1, "l": [1]}}}))
    assert owned(made)[ONE]["f:spec"]["f:free"] == {"f:x": {".": {}, "f:l": {}, "f:y": {}}}


async def test_defaults_belong_to_nobody_who_applies(api, sites):
    made = await api.apply(f"{sites}/a", site())
    assert made["spec"] == {"theme": "dark", "replicas": 1}
    assert owned(made) == {ONE: {"f:spec": {"f:theme": {}}}}


async def test_the_status_is_applied_by_its_subresource(api, sites):
    await api.apply(f"{sites}/a", site())
    body = {key: value for key, value in site(status={"phase": "Ready"}).items() if key != "spec"}
    changed = await api.apply(f"{sites}/a/status", body)
    assert changed["status"] == {"phase": "Ready"}
    assert owned(changed)["one", "Apply", "status"] == {"f:status": {"f:phase": {}}}


@pytest.mark.live  # which of one second are the oldest differs
async def test_of_many_updaters_the_oldest_become_ancient_changes(api, maps):
    await api.create(maps, config_map(data={"a": "1"}))
    for number in range(12):
        last = await api.merge(f"{maps}/a", {"data": {f"k{number}": "1"}}, fieldManager=f"m{number}")
    managers = [entry["manager"] for entry in last.meta["managedFields"]]
    assert len(managers) == 10
    assert managers.count("ancient-changes") == 1


@pytest.mark.regression
async def test_apply_creates_nothing_for_a_uid(api, maps):
    refused = await api.apply(f"{maps}/a", config_map(uid="u1"))
    assert refused.refusal == (409, "Conflict")
    assert refused.message == (
        'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object specified uid u1, '
        "and no existing object was found"
    )
    assert (await api.get(f"{maps}/a")).status == 404
    assert (await api.apply(f"{maps}/a", config_map(uid=""))).status == 201
