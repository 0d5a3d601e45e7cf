"""Strategic merge patch of built-in kinds."""

from copy import deepcopy

import pytest

TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "x"}}],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 1, "name": "x"}, {"containerPort": 2}],
                "args": ["a", "b"],
            },
            {"name": "d", "image": "j"},
        ],
    },
}
DEPLOYMENT = {
    "metadata": {"name": "a", "labels": {"x": "y"}, "finalizers": ["a/b", "c/d"]},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
}


@pytest.fixture
async def path(api, ns):
    deployments = f"/apis/apps/v1/namespaces/{ns}/deployments"
    made = await api.create(deployments, deepcopy(DEPLOYMENT))
    assert made.status == 201, made.text
    return f"{deployments}/a"


def pods(**spec):
    return {"spec": {"template": {"spec": spec}}}


def pod(answer):
    assert answer.status == 200, answer.text
    return answer["spec"]["template"]["spec"]


def names(items):
    return [item["name"] for item in items]


@pytest.mark.parametrize(
    ("patch", "left"),
    [
        ([{"name": "c", "image": "n"}], ["c", "d"]),
        ([{"name": "e", "image": "n"}], ["e", "c", "d"]),
        ([{"name": "d", "image": "n"}, {"name": "e", "image": "n"}], ["c", "d", "e"]),
        ([{"name": "e", "image": "n"}, {"name": "d", "image": "n"}], ["e", "c", "d"]),
        ([{"name": "c", "$patch": "delete"}], ["d"]),
        ([{"name": "z", "$patch": "delete"}], ["c", "d"]),
        ([{"$patch": "replace"}, {"name": "e", "image": "n"}], ["e"]),
        ([{"name": "e", "image": "n"}, {"$patch": "replace"}], ["e"]),
        ([], ["c", "d"]),
    ],
)
async def test_items_are_merged_by_their_key_and_new_ones_come_first(api, path, patch, left):
    assert names(pod(await api.strategic(path, pods(containers=patch)))["containers"]) == left


@pytest.mark.parametrize(
    ("order", "containers", "left"),
    [
        (["d", "c"], None, ["d", "c"]),
        (["d"], None, ["c", "d"]),
        (["d", "c", "e"], [{"name": "e", "image": "n"}], ["d", "c", "e"]),
        (["d", "e"], [{"name": "e", "image": "n"}], ["c", "d", "e"]),
        (["e", "d"], [{"name": "e", "image": "n"}], ["e", "c", "d"]),
        (["e", "d"], [{"name": "e", "image": "n"}, {"name": "c", "$patch": "delete"}], ["e", "d"]),
    ],
)
async def test_an_order_is_kept(api, path, order, containers, left):
    body = {"$setElementOrder/containers": [{"name": name} for name in order]}
    if containers is not None:
        body["containers"] = containers
    assert names(pod(await api.strategic(path, pods(**body)))["containers"]) == left


async def test_lists_within_items_are_merged_too(api, path):
    env = [{"name": "C", "value": "3"}, {"name": "A", "value": None}, {"name": "B", "$patch": "delete"}]
    container = pod(await api.strategic(path, pods(containers=[{"name": "c", "env": env}])))["containers"][0]
    assert container["env"] == [{"name": "C", "value": "3"}, {"name": "A"}]
    assert container["image"] == "i"


async def test_ports_are_merged_by_their_number_alone(api, path):
    ports = [{"containerPort": 1, "protocol": "UDP"}, {"containerPort": 3}]
    container = pod(await api.strategic(path, pods(containers=[{"name": "c", "ports": ports}])))[
        "containers"
    ][0]
    assert container["ports"] == [
        {"containerPort": 1, "protocol": "UDP", "name": "x"},
        {"containerPort": 3, "protocol": "TCP"},
        {"containerPort": 2, "protocol": "TCP"},
    ]


async def test_lists_without_a_strategy_are_replaced(api, path):
    spec = pod(
        await api.strategic(
            path,
            pods(tolerations=[{"key": "z", "operator": "Exists"}], containers=[{"name": "c", "args": ["z"]}]),
        )
    )
    assert spec["tolerations"] == [{"key": "z", "operator": "Exists"}]
    assert spec["containers"][0]["args"] == ["z"]


async def test_null_removes(api, path):
    body = {"metadata": {"labels": {"x": None, "z": "1"}}, **pods(tolerations=None)}
    answer = await api.strategic(path, body)
    assert "tolerations" not in pod(answer)
    assert answer.meta["labels"] == {"z": "1"}


async def test_retained_keys_clear_the_others(api, path):
    volume = {"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}
    spec = pod(await api.strategic(path, pods(volumes=[volume])))
    assert spec["volumes"][0] == {"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}
    strategy = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    assert (await api.strategic(path, {"spec": strategy}))["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("metadata", "left"),
    [
        ({"finalizers": ["e/f"]}, ["e/f", "a/b", "c/d"]),
        ({"finalizers": ["c/d"]}, ["a/b", "c/d"]),
        ({"$deleteFromPrimitiveList/finalizers": ["a/b"]}, ["c/d"]),
        ({"$setElementOrder/finalizers": ["c/d", "a/b"]}, ["c/d", "a/b"]),
        (
            {
                "$deleteFromPrimitiveList/finalizers": ["a/b"],
                "$setElementOrder/finalizers": ["x/y", "c/d"],
                "finalizers": ["x/y"],
            },
            ["x/y", "c/d"],
        ),
        ({"finalizers": None}, None),
    ],
)
async def test_finalizers_are_a_set(api, path, metadata, left):
    answer = await api.strategic(path, {"metadata": metadata})
    assert (answer.status, answer.meta.get("finalizers")) == (200, left)


async def test_owners_are_merged_by_uid(api, path):
    one = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u1"}
    await api.strategic(path, {"metadata": {"ownerReferences": [one]}})
    renamed = await api.strategic(
        path, {"metadata": {"ownerReferences": [{"uid": "u1", "controller": True}]}}
    )
    assert renamed.meta["ownerReferences"] == [{**one, "controller": True}]
    gone = await api.strategic(path, {"metadata": {"ownerReferences": [{"uid": "u1", "$patch": "delete"}]}})
    assert "ownerReferences" not in gone.meta


@pytest.mark.parametrize(
    ("labels", "left"),
    [({"$patch": "replace", "z": "1"}, {"z": "1"}), ({"$patch": "delete"}, None)],
)
async def test_a_map_is_replaced_or_deleted(api, path, labels, left):
    answer = await api.strategic(path, {"metadata": {"labels": labels}})
    assert (answer.status, answer.meta.get("labels")) == (200, left)


@pytest.mark.parametrize("directive", ["replace", "delete"])
async def test_a_directive_for_what_is_not_there_leaves_nothing(api, path, directive):
    spec = pod(await api.strategic(path, pods(affinity={"$patch": directive, "nodeAffinity": {}})))
    assert "affinity" not in spec


@pytest.mark.parametrize(
    ("body", "refusal", "message"),
    [
        (
            pods(containers=[{"image": "n"}]),
            (500, None),
            "map: map[image:n] does not contain declared merge key: name",
        ),
        (
            pods(containers=[{"$patch": "delete"}]),
            (500, None),
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            pods(containers=[{"$patch": "merge"}]),
            (500, None),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            pods(containers=[{"$patch": "no", "name": "c"}]),
            (500, None),
            "unknown patch type: no in map: map[$patch:no name:c]",
        ),
        (
            {"metadata": {"labels": {"$patch": "no", "z": "1"}}},
            (500, None),
            "unknown patch type: no in map: map[$patch:no z:1]",
        ),
        (
            pods(**{"$setElementOrder/containers": "x"}),
            (500, None),
            "expected a []interface {}, but received a string",
        ),
        (
            pods(
                **{
                    "$setElementOrder/containers": [{"name": "d"}],
                    "containers": [{"name": "e", "image": "x"}],
                }
            ),
            (500, None),
            "The order in patch list:\n[map[image:x name:e]]\n doesn't match $setElementOrder list:\n[map[name:d]]\n",
        ),
        (
            pods(volumes=[{"name": "v", "$retainKeys": ["name"], "secret": {}}]),
            (400, "BadRequest"),
            "invalid patch format of retainKeys",
        ),
        (
            {"$patch": "delete"},
            (400, "BadRequest"),
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            [],
            (400, "BadRequest"),
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ],
)
async def test_a_patch_that_cannot_be_carried_out_is_refused(api, path, body, refusal, message):
    refused = await api.strategic(path, body)
    assert (refused.refusal, refused.message) == (refusal, message)


@pytest.mark.parametrize(
    ("body", "shown", "problem"),
    [
        ({"spec": {"replicas": "x"}}, "map[spec:map[replicas:x]]", "unrecognized type: int32"),
        ({"spec": {"replicas": 1.5}}, "map[spec:map[replicas:1.5]]", "cannot convert float64 to int32"),
        ({"spec": {"paused": 1}}, "map[spec:map[paused:1]]", "unrecognized type: bool"),
        ({"spec": []}, "map[spec:[]]", "cannot restore struct from: slice"),
        ({"metadata": {"labels": []}}, "map[metadata:map[labels:[]]]", "cannot restore map from slice"),
        (
            {"metadata": {"labels": {"a": 1}}},
            "map[metadata:map[labels:map[a:1]]]",
            "cannot convert int64 to string",
        ),
        (
            pods(containers="x"),
            "map[spec:map[template:map[spec:map[containers:x]]]]",
            "cannot restore slice from string",
        ),
        (
            {"metadata": {"creationTimestamp": "x"}},
            "map[metadata:map[creationTimestamp:x]]",
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
    ],
)
async def test_a_result_of_another_type_is_invalid(api, path, body, shown, problem):
    refused = await api.strategic(path, body)
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {("patch", "FieldValueInvalid", f'Invalid value: "{shown}": {problem}')}


async def test_what_an_object_is_cannot_be_patched_strategically(api, path):
    assert (await api.strategic(path, {"kind": "Pod", "apiVersion": "v1"}))["kind"] == "Deployment"


async def test_an_old_version_is_a_conflict(api, path):
    refused = await api.strategic(path, {"metadata": {"resourceVersion": "1"}})
    assert refused.refusal == (409, "Conflict")


async def test_a_strategic_patch_is_an_update_of_the_fields_it_changes(api, path):
    answer = await api.strategic(path, pods(containers=[{"name": "c", "image": "n"}]), fieldManager="me")
    owned = {entry["manager"]: entry["fieldsV1"] for entry in answer.meta["managedFields"]}
    containers = {'k:{"name":"c"}': {"f:image": {}}}
    assert owned["me"] == {"f:spec": {"f:template": {"f:spec": {"f:containers": containers}}}}


async def test_unchanged_is_not_written(api, path):
    before = await api.get(path)
    same = await api.strategic(path, pods(containers=[{"name": "c", "image": "i"}]))
    assert same.body == before.body


async def test_the_status_is_patched_by_its_conditions(api, path):
    moment = "2020-01-01T00:00:00Z"
    first = {"type": "A", "status": "True", "lastUpdateTime": moment, "lastTransitionTime": moment}
    await api.strategic(f"{path}/status", {"status": {"conditions": [first]}})
    second = {**first, "type": "B"}
    both = await api.strategic(
        f"{path}/status", {"status": {"conditions": [second, {"type": "A", "status": "False"}]}}
    )
    assert both["status"]["conditions"] == [second, {**first, "status": "False"}]
