"""Nodes, PriorityClasses and RuntimeClasses."""

import pytest
from conformance_workloads import (
    LABEL,
    NOT_NEGATIVE,
    QUALIFIED,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)

NODES = "/api/v1/nodes"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
TAINT = '{"Key":"k","Value":"v","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair'
RESERVED = "priority class names with 'system-' prefix are reserved for system use only. error: "
FIXED = 'node updates may not change podCIDR except from "" to valid'
STORED = {
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    "nodeInfo": {
        "architecture": "",
        "bootID": "",
        "containerRuntimeVersion": "",
        "kernelVersion": "",
        "kubeProxyVersion": "",
        "kubeletVersion": "",
        "machineID": "",
        "operatingSystem": "",
        "osImage": "",
        "systemUUID": "",
    },
}
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def named(name, **fields):
    return {"metadata": {"name": name}, **fields}


@pytest.fixture
async def nodes(api, name):
    """Returns the path of the test case's own node, which does not exist yet."""
    yield f"{NODES}/{name}"
    await api.delete(f"{NODES}/{name}")


@pytest.fixture
async def priority(api, name):
    yield f"{PRIORITIES}/{name}"
    await api.delete(f"{PRIORITIES}/{name}")


async def test_a_minimal_node(api, nodes, name):
    made = await api.create(NODES, named(name))
    assert (made["spec"], made["status"]) == ({}, STORED)
    assert "generation" not in made.meta


async def test_a_new_node_brings_its_status(api, nodes, name):
    capacity = {"cpu": "1", "memory": "1Gi"}
    status = {
        "capacity": capacity,
        "phase": "Running",
        "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
    }
    made = await api.create(NODES, named(name, status=status))
    assert made["status"] == {**STORED, **status, "allocatable": capacity}


async def test_a_nodes_block_is_one_of_its_blocks(api, nodes, name):
    made = await api.create(NODES, named(name, spec={"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.1.0/24"]}))
    assert made["spec"] == {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}
    for spec in ({"podCIDR": "10.0.2.0/24"}, {"podCIDR": "10.0.2.0/24", "podCIDRs": ["10.0.2.0/24"]}):
        refused = await api.merge(nodes, {"spec": spec})
        assert refused.causes == {forbidden("spec.podCIDRs", FIXED)}


async def test_a_nodes_provider_is_for_good(api, nodes, name):
    await api.create(NODES, named(name))
    assert (await api.merge(nodes, {"spec": {"providerID": "x"}})).status == 200
    refused = await api.merge(nodes, {"spec": {"providerID": "y"}})
    assert refused.causes == {invalid("spec.providerID", "null", "field cannot be modified once set")}


async def test_spec_and_status_of_a_node_are_written_apart(api, nodes, name):
    await api.create(NODES, named(name))
    change = {"spec": {"unschedulable": True}, "status": {"phase": "Running"}}
    assert (await api.merge(nodes, change))["status"] == STORED
    await api.merge(nodes, {"spec": None})
    written = await api.merge(f"{nodes}/status", change)
    assert (written["spec"], written["status"]) == ({}, {**STORED, "phase": "Running"})


async def test_a_node_has_each_address_once(api, nodes, name):
    await api.create(NODES, named(name))
    address = {"type": "InternalIP", "address": "1.2.3.4"}
    refused = await api.merge(f"{nodes}/status", {"status": {"addresses": [address, address]}})
    assert refused.causes == {duplicate("status.addresses[1]", '{"Type":"InternalIP","Address":"1.2.3.4"}')}


async def test_nodes_are_selected_by_whether_they_take_pods(api, nodes, name):
    await api.create(NODES, {"metadata": {"name": name, "labels": {"case": name}}})
    for selector, names in (("spec.unschedulable=false", [name]), ("spec.unschedulable=true", [])):
        found = await api.get(NODES, labelSelector=f"case={name}", fieldSelector=selector)
        assert [item["metadata"]["name"] for item in found["items"]] == names
    refused = await api.get(NODES, fieldSelector="spec.x=y")
    assert refused.message.endswith("field label not supported: spec.x")


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"taints": [{"key": "a b", "effect": "NoSchedule"}]},
            {invalid("metadata.taints[0].key", '"a b"', QUALIFIED)},
        ),
        (
            {"taints": [{"key": "k", "value": "c d", "effect": "NoSchedule"}]},
            {invalid("metadata.taints[0].value", '"c d"', LABEL_VALUE)},
        ),
        (
            {"taints": [{"key": "k", "effect": "x"}]},
            {unsupported("metadata.taints[0].effect", '"x"', "NoSchedule", "PreferNoSchedule", "NoExecute")},
        ),
        ({"taints": [{"key": "k"}]}, {required("metadata.taints[0].effect")}),
        (
            {
                "taints": [
                    {"key": "k", "effect": "NoSchedule"},
                    {"key": "k", "effect": "NoSchedule", "value": "v"},
                ]
            },
            {duplicate("metadata.taints[1]", TAINT)},
        ),
        (
            {"podCIDR": "x"},
            {
                invalid(
                    "spec.podCIDRs[0]",
                    '"x"',
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                )
            },
        ),
        (
            {"podCIDR": "1.2.3.4/24"},
            {invalid("spec.podCIDRs[0]", '"1.2.3.4/24"', "must not have bits set beyond the prefix length")},
        ),
        (
            {"podCIDRs": ["10.0.1.0/24", "10.0.2.0/24"]},
            {
                invalid(
                    "spec.podCIDRs",
                    '["10.0.1.0/24","10.0.2.0/24"]',
                    "may specify no more than one CIDR for each IP family",
                )
            },
        ),
    ],
)
async def test_an_unsound_node(api, spec, causes):
    refused = await api.create(NODES, named("a", spec=spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


@pytest.mark.parametrize(
    ("status", "causes"),
    [
        (
            {"capacity": {"pods": "500m"}},
            {
                invalid("status.allocatable.pods", '"500m"', "must be an integer"),
                invalid("status.capacity.pods", '"500m"', "must be an integer"),
            },
        ),
        (
            {"capacity": {"cpu": "-1"}, "allocatable": {"cpu": "1"}},
            {invalid("status.capacity.cpu", '"-1"', NOT_NEGATIVE)},
        ),
    ],
)
async def test_unsound_amounts_of_a_node(api, status, causes):
    refused = await api.create(NODES, named("a", status=status))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_minimal_priority(api, priority, name):
    made = await api.create(PRIORITIES, named(name))
    assert (made["value"], made["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert made.meta["generation"] == 1


async def test_every_cluster_has_the_priorities_of_the_system(api):
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
        found = await api.get(f"{PRIORITIES}/{name}")
        assert (found["value"], found["preemptionPolicy"]) == (value, "PreemptLowerPriority")
        assert found["description"].startswith("Used for system critical pods that must ")


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        (
            {"value": 1000000001},
            {forbidden("value", "maximum allowed value of a user defined priority is 1000000000")},
        ),
        (
            {"value": 1, "preemptionPolicy": "x"},
            {unsupported("preemptionPolicy", '"x"', "PreemptLowerPriority", "Never")},
        ),
        (
            {"metadata": {"name": "system-x"}, "value": 1},
            {
                forbidden(
                    "metadata.name",
                    f"{RESERVED}system-x is not a known system priority class",
                )
            },
        ),
        (
            {"metadata": {"name": "system-node-critical"}, "value": 1},
            {
                forbidden(
                    "metadata.name",
                    f"{RESERVED}value of system-node-critical PriorityClass must be 2000001000",
                )
            },
        ),
        (
            {"metadata": {"name": "system-node-critical"}, "value": 2000001000, "globalDefault": True},
            {
                forbidden(
                    "metadata.name",
                    f"{RESERVED}globalDefault of system-node-critical PriorityClass must be false",
                )
            },
        ),
    ],
)
async def test_an_unsound_priority(api, fields, causes):
    refused = await api.create(PRIORITIES, {**named("a"), **fields})
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_priority_keeps_its_value(api, priority, name):
    await api.create(PRIORITIES, named(name, value=5))
    refused = await api.merge(priority, {"value": 6, "preemptionPolicy": "Never"})
    assert refused.causes == {
        forbidden("value", "may not be changed in an update."),
        invalid("preemptionPolicy", '"Never"', "field is immutable"),
    }
    assert (await api.merge(priority, {"description": "x"})).meta["generation"] == 1


async def test_only_one_priority_is_for_all(api, priority, name):
    await api.create(PRIORITIES, named(name, value=5, globalDefault=True))
    refused = await api.create(PRIORITIES, named(f"{name}-b", value=5, globalDefault=True))
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == (
        f'priorityclasses.scheduling.k8s.io "{name}-b" is forbidden: PriorityClass {name} is already marked as '
        "default. Only one default can exist"
    )
    assert (await api.merge(priority, {"description": "x"})).status == 200


async def test_a_minimal_runtime(api, name):
    made = await api.create(RUNTIMES, named(name, handler="h"))
    assert made.body.keys() == {"apiVersion", "kind", "metadata", "handler"}
    refused = await api.merge(f"{RUNTIMES}/{name}", {"handler": "i"})
    assert refused.causes == {invalid("handler", "null", "field is immutable")}
    await api.delete(f"{RUNTIMES}/{name}")


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"handler": ""}, {required("handler")}),
        ({"handler": "A_"}, {invalid("handler", '"A_"', LABEL)}),
        (
            {"handler": "h", "overhead": {"podFixed": {"x": "1"}}},
            {
                invalid("overhead.limits[x]", '"x"', "must be a standard resource for containers"),
                invalid("overhead.limits[x]", '"x"', "must be a standard resource type or fully qualified"),
            },
        ),
        (
            {"handler": "h", "scheduling": {"nodeSelector": {"a b": "c"}}},
            {invalid("scheduling.nodeSelector", '"a b"', QUALIFIED)},
        ),
        (
            {"handler": "h", "scheduling": {"tolerations": [{"operator": "x"}]}},
            {
                invalid(
                    "scheduling.tolerations[0].operator",
                    '"x"',
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"',
                ),
                unsupported("scheduling.tolerations[0].operator", '"x"', "Equal", "Exists"),
            },
        ),
    ],
)
async def test_an_unsound_runtime(api, fields, causes):
    refused = await api.create(RUNTIMES, named("a", **fields))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes
