"""Server-side apply of built-in kinds: list keys, defaults, nulls, and the effects of removing a field."""

import pytest
from conformance_api import owned

ONE = ("one", "Apply", "")
TWO = ("two", "Apply", "")
PORT = 'k:{"containerPort":80,"protocol":"TCP"}'


@pytest.fixture
def path(ns):
    return f"/apis/apps/v1/namespaces/{ns}/deployments/a"


def deployment(*containers, **spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": list(containers)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec},
    }


def container(**fields):
    return {"name": "c", "image": "i", **fields}


def first(answer):
    assert answer.status in (200, 201), answer.text
    return answer["spec"]["template"]["spec"]["containers"][0]


def owned_of_first(answer, manager):
    spec = owned(answer)[manager]["f:spec"]["f:template"]["f:spec"]
    return spec["f:containers"]['k:{"name":"c"}']


async def test_two_appliers_share_a_container_and_its_lists(api, path):
    await api.apply(path, deployment(container(env=[{"name": "A", "value": "1"}])))
    both = await api.apply(path, deployment({"name": "c", "env": [{"name": "B", "value": "2"}]}), "two")
    assert first(both)["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert owned_of_first(both, TWO) == {
        ".": {},
        "f:name": {},
        "f:env": {'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}}},
    }
    left = await api.apply(path, deployment({"name": "c"}), "two")
    assert first(left)["env"] == [{"name": "A", "value": "1"}]


async def test_a_conflict_within_an_item_names_its_key(api, path):
    await api.apply(path, deployment(container(env=[{"name": "A", "value": "1"}])))
    refused = await api.apply(path, deployment({"name": "c", "env": [{"name": "A", "value": "2"}]}), "two")
    where = '.spec.template.spec.containers[name="c"].env[name="A"].value'
    assert refused.causes == {(where, "FieldManagerConflict", 'conflict with "one"')}
    forced = await api.apply(
        path, deployment({"name": "c", "env": [{"name": "A", "value": "2"}]}), "two", force=True
    )
    assert first(forced)["env"] == [{"name": "A", "value": "2"}]
    assert "f:value" not in owned_of_first(forced, ONE)["f:env"]['k:{"name":"A"}']


async def test_a_key_that_is_left_out_has_its_default(api, path):
    made = await api.apply(path, deployment(container(ports=[{"containerPort": 80}])))
    assert owned_of_first(made, ONE)["f:ports"] == {PORT: {".": {}, "f:containerPort": {}}}
    again = await api.apply(
        path, deployment(container(ports=[{"containerPort": 80, "protocol": "TCP", "name": "x"}])), "two"
    )
    assert first(again)["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "x"}]


async def test_ports_of_two_protocols_are_two_items(api, path):
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
    made = await api.apply(path, deployment(container(ports=ports)))
    assert first(made)["ports"] == [{"containerPort": 80, "protocol": "TCP"}, ports[1]]


async def test_a_struct_goes_with_its_defaults_when_nobody_states_it_any_more(api, path):
    made = await api.apply(path, deployment(container(livenessProbe={"httpGet": {"port": 80}})))
    assert first(made)["livenessProbe"]["httpGet"] == {"path": "/", "port": 80, "scheme": "HTTP"}
    left = await api.apply(path, deployment(container()))
    assert "livenessProbe" not in first(left)


async def test_a_struct_of_which_another_owns_a_part_stays(api, path):
    probe = {"httpGet": {"port": 80}}
    await api.apply(path, deployment(container(livenessProbe=probe)))
    await api.apply(path, deployment({"name": "c", "livenessProbe": {"periodSeconds": 7, **probe}}), "two")
    left = await api.apply(path, deployment(container()))
    assert first(left)["livenessProbe"]["periodSeconds"] == 7
    assert first(left)["livenessProbe"]["httpGet"]["port"] == 80


async def test_null_for_a_list_or_a_struct_states_nothing_of_it(api, path):
    await api.apply(path, deployment(container(env=[{"name": "A", "value": "1"}])))
    kept = await api.apply(path, deployment({"name": "c", "env": None}), "two")
    assert first(kept)["env"] == [{"name": "A", "value": "1"}]
    kept = await api.apply(path, deployment({"name": "c"}, strategy={"rollingUpdate": None}), "two")
    assert kept["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}


async def test_a_quantity_is_owned_as_it_was_stated_and_kept_in_its_canonical_form(api, path):
    body = deployment(container(resources={"limits": {"cpu": "1000m"}}))
    made = await api.apply(path, body)
    assert first(made)["resources"] == {"limits": {"cpu": "1"}}
    assert (await api.apply(path, body)).body == made.body


async def test_a_default_belongs_to_nobody_who_applies(api, path):
    made = await api.apply(path, deployment(container()))
    assert made["spec"]["replicas"] == 1
    assert "f:replicas" not in owned(made)[ONE]["f:spec"]
    taken = await api.apply(path, deployment({"name": "c"}, replicas=2), "two")
    assert (taken.status, taken["spec"]["replicas"]) == (200, 2)


async def test_an_update_owns_the_defaults_it_brings(api, ns):
    made = await api.create(f"/apis/apps/v1/namespaces/{ns}/deployments", deployment(container()))
    (fields,) = owned(made).values()
    assert fields["f:spec"]["f:replicas"] == {}
    spec = fields["f:spec"]["f:template"]["f:spec"]
    assert spec["f:containers"].keys() == {'k:{"name":"c"}'}


async def test_nodes_taints_are_atomic_and_secrets_of_an_account_are_not(api, ns, name):
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **taints}
    assert owned(await api.apply(f"/api/v1/nodes/{name}", node)) == {ONE: {"f:spec": {"f:taints": {}}}}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "a"},
        "secrets": [{"name": "x"}],
    }
    made = await api.apply(f"/api/v1/namespaces/{ns}/serviceaccounts/a", account)
    assert owned(made) == {ONE: {"f:secrets": {'k:{"name":"x"}': {}}}}
