"""Binding, eviction, logs and graceful deletion of pods."""

import asyncio
from datetime import datetime

import pytest
from conformance_workloads import LABELS, SELECTOR, container, pod, running_container

BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
EVICTION = {"metadata": {"name": "a"}}


@pytest.fixture
def pods(ns):
    return f"/api/v1/namespaces/{ns}/pods"


@pytest.fixture
def budgets(ns):
    return f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"


def grace(answer):
    """Returns the seconds between creation and deletion, and the grace period in the object."""
    meta = answer.meta
    begin, end = (datetime.fromisoformat(meta[field]) for field in ("creationTimestamp", "deletionTimestamp"))
    return round((end - begin).total_seconds()), meta["deletionGracePeriodSeconds"]


async def test_a_pod_on_no_node_goes_at_once(api, pods):
    made = await api.create(pods, pod())
    gone = await api.delete(f"{pods}/a")
    assert (gone.status, gone["kind"]) == (200, "Pod")
    assert gone.meta["deletionGracePeriodSeconds"] == 0
    assert gone.meta["generation"] == 2
    assert int(gone.version) > int(made.version)
    assert (await api.get(f"{pods}/a")).refusal == (404, "NotFound")


async def test_a_deletion_is_written_down_before_the_pod_goes(api, pods):
    made = await api.create(pods, pod())
    async with api.watch(pods, resourceVersion=made.version) as events:
        await api.delete(f"{pods}/a")
        seen = [await events.next(), await events.next()]
    assert [event["type"] for event in seen] == ["MODIFIED", "DELETED"]
    assert all(event["object"]["metadata"]["deletionTimestamp"] for event in seen)


async def test_a_pod_on_a_node_stays_for_as_long_as_it_says(api, pods):
    await api.create(pods, pod(nodeName="n", terminationGracePeriodSeconds=100))
    waiting = await api.delete(f"{pods}/a")
    seconds, told = grace(waiting)
    assert told == 100
    assert 100 <= seconds <= 110
    assert waiting.meta["generation"] == 2
    assert (await api.get(f"{pods}/a")).version == waiting.version


@pytest.mark.parametrize("where", ["body", "query"])
async def test_a_deletion_says_for_how_long(api, pods, where):
    await api.create(pods, pod(nodeName="n"))
    said = {"gracePeriodSeconds": 60}
    waiting = await (api.delete(f"{pods}/a", said) if where == "body" else api.delete(f"{pods}/a", **said))
    assert waiting.meta["deletionGracePeriodSeconds"] == 60


async def test_a_second_deletion_waits_no_longer(api, pods):
    await api.create(pods, pod(nodeName="n"))
    first = await api.delete(f"{pods}/a")
    assert (await api.delete(f"{pods}/a")).body == first.body
    assert (await api.delete(f"{pods}/a", gracePeriodSeconds=40)).body == first.body


async def test_a_second_deletion_may_be_sooner(api, pods):
    await api.create(pods, pod(nodeName="n", terminationGracePeriodSeconds=1000))
    await api.delete(f"{pods}/a")
    seconds, told = grace(await api.delete(f"{pods}/a", gracePeriodSeconds=500))
    assert told == 500
    assert 500 <= seconds <= 510


async def test_no_grace_removes_the_pod(api, pods):
    await api.create(pods, pod(nodeName="n"))
    gone = await api.delete(f"{pods}/a", gracePeriodSeconds=0)
    assert gone.meta["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{pods}/a")).status == 404


async def test_the_agent_of_the_node_ends_the_wait(api, pods):
    await api.create(pods, pod(nodeName="n"))
    await api.delete(f"{pods}/a")
    gone = await api.delete(f"{pods}/a", {"gracePeriodSeconds": 0})
    assert gone.meta["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{pods}/a")).status == 404


async def test_a_negative_grace_is_one_second(api, pods):
    await api.create(pods, pod(nodeName="n"))
    waiting = await api.delete(f"{pods}/a", gracePeriodSeconds=-1)
    assert waiting.meta["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_goes_at_once(api, pods, phase):
    await api.create(pods, pod(nodeName="n"))
    await api.merge(f"{pods}/a/status", {"status": {"phase": phase}})
    await api.delete(f"{pods}/a")
    assert (await api.get(f"{pods}/a")).status == 404


async def test_a_pod_waits_for_its_grace_after_its_finalizers(api, pods):
    body = pod(nodeName="n")
    body["metadata"]["finalizers"] = ["a/b"]
    await api.create(pods, body)
    await api.delete(f"{pods}/a")
    assert (await api.merge(f"{pods}/a", {"metadata": {"finalizers": None}})).status == 200
    assert (await api.get(f"{pods}/a")).status == 200
    await api.delete(f"{pods}/a", gracePeriodSeconds=0)
    assert (await api.get(f"{pods}/a")).status == 404


async def test_finalizers_hold_a_pod_that_has_no_grace(api, pods):
    body = pod()
    body["metadata"]["finalizers"] = ["a/b"]
    await api.create(pods, body)
    waiting = await api.delete(f"{pods}/a")
    assert waiting.meta["deletionGracePeriodSeconds"] == 0
    await api.merge(f"{pods}/a", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{pods}/a")).status == 404


async def test_a_dry_run_deletes_nothing(api, pods):
    await api.create(pods, pod())
    shown = await api.delete(f"{pods}/a", dryRun="All")
    assert shown.meta["deletionTimestamp"]
    assert "deletionTimestamp" not in (await api.get(f"{pods}/a")).meta


async def test_of_a_collection_those_on_nodes_wait(api, pods):
    await api.create(pods, pod())
    await api.create(pods, pod("b", nodeName="n"))
    gone = await api.delete(pods)
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "b"]
    left = (await api.get(pods))["items"]
    assert [(item["metadata"]["name"], item["metadata"]["deletionGracePeriodSeconds"]) for item in left] == [
        ("b", 30)
    ]


async def test_a_binding_says_where_a_pod_runs(api, pods):
    await api.create(pods, pod())
    body = {**BINDING, "metadata": {"name": "a", "annotations": {"x": "y"}, "labels": {"l": "m"}}}
    answer = await api.create(f"{pods}/a/binding", body)
    assert (answer.status, answer["kind"], answer["status"]) == (201, "Status", "Success")
    bound = await api.get(f"{pods}/a")
    assert bound["spec"]["nodeName"] == "n"
    assert (bound.meta["annotations"], bound.meta["labels"]) == ({"x": "y"}, {"l": "m"})
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["lastProbeTime"]) == (
        "PodScheduled",
        "True",
        None,
    )
    assert bound.meta["generation"] == 1


async def test_a_pod_is_bound_once(api, pods):
    await api.create(pods, pod())
    await api.create(f"{pods}/a/binding", BINDING)
    refused = await api.create(f"{pods}/a/binding", BINDING)
    assert refused.refusal == (409, "Conflict")
    assert refused.message == (
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n"'
    )


async def test_a_gated_pod_is_not_bound(api, pods):
    await api.create(pods, pod(schedulingGates=[{"name": "g"}]))
    refused = await api.create(f"{pods}/a/binding", BINDING)
    assert refused.message.endswith("pod a has non-empty .spec.schedulingGates")


async def test_a_binding_for_nobody_is_not_found(api, pods):
    refused = await api.create(f"{pods}/a/binding", BINDING)
    assert refused.refusal == (404, "NotFound")
    assert refused.message == 'pods "a" not found'


@pytest.mark.parametrize("meta", [{"name": "b"}, {}])
async def test_a_binding_names_its_pod(api, pods, meta):
    await api.create(pods, pod())
    refused = await api.create(f"{pods}/a/binding", {**BINDING, "metadata": meta})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "name in URL does not match name in Binding object"


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ({}, "target.name: Required value"),
        (
            {"kind": "X", "name": "n"},
            'target.kind: Unsupported value: "X": supported values: "Node", "<empty>"',
        ),
    ],
)
async def test_a_binding_names_a_node(api, pods, node, problem):
    await api.create(pods, pod())
    refused = await api.create(f"{pods}/a/binding", {"metadata": {"name": "a"}, "target": node})
    assert refused.refusal == (500, None)
    assert refused.message == problem


async def test_a_binding_can_be_created_only(api, pods):
    await api.create(pods, pod())
    assert (await api.get(f"{pods}/a/binding")).refusal == (405, "MethodNotAllowed")
    assert (await api.replace(f"{pods}/a/binding", BINDING)).refusal == (405, "MethodNotAllowed")


async def test_bindings_are_a_kind_of_the_namespace_too(api, pods, ns):
    await api.create(pods, pod())
    assert (await api.create(f"/api/v1/namespaces/{ns}/bindings", BINDING)).status == 201
    assert (await api.get(f"{pods}/a"))["spec"]["nodeName"] == "n"


async def running(api, pods, *, ready=True):
    body = pod(nodeName="n")
    body["metadata"]["labels"] = LABELS
    await api.create(pods, body)
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    await api.merge(f"{pods}/a/status", {"status": {"phase": "Running", "conditions": conditions}})


async def budget(api, budgets, *, healthy=2, desired=1, allowed=1, observed=1, name="b", **spec):
    body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": SELECTOR, **spec}}
    assert (await api.create(budgets, body)).status == 201
    status = {
        "observedGeneration": observed,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": healthy,
    }
    assert (await api.merge(f"{budgets}/{name}/status", {"status": status})).status == 200


async def test_an_eviction_is_a_deletion_with_a_reason(api, pods):
    await running(api, pods)
    answer = await api.create(f"{pods}/a/eviction", EVICTION)
    assert (answer.status, answer["kind"], answer["status"]) == (201, "Status", "Success")
    evicted = await api.get(f"{pods}/a")
    assert evicted.meta["deletionGracePeriodSeconds"] == 30
    told = {**evicted["status"]["conditions"][1]}
    del told["lastTransitionTime"]
    assert told == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }


async def test_an_eviction_says_for_how_long(api, pods):
    await running(api, pods)
    body = {**EVICTION, "deleteOptions": {"gracePeriodSeconds": 3}}
    assert (await api.create(f"{pods}/a/eviction", body)).status == 201
    assert (await api.get(f"{pods}/a")).meta["deletionGracePeriodSeconds"] == 3


async def test_a_pod_that_does_not_run_yet_is_evicted_whatever_budgets_say(api, pods, budgets):
    body = pod()
    body["metadata"]["labels"] = LABELS
    await api.create(pods, body)
    await budget(api, budgets, allowed=0)
    assert (await api.create(f"{pods}/a/eviction", EVICTION)).status == 201
    assert (await api.get(f"{pods}/a")).status == 404


async def test_an_eviction_spends_the_budget(api, pods, budgets):
    await running(api, pods)
    await budget(api, budgets, allowed=1)
    assert (await api.create(f"{pods}/a/eviction", EVICTION)).status == 201
    spent = (await api.get(f"{budgets}/b"))["status"]
    assert spent["disruptionsAllowed"] == 0
    assert list(spent["disruptedPods"]) == ["a"]
    (told,) = spent["conditions"]
    assert (told["type"], told["status"], told["reason"]) == (
        "DisruptionAllowed",
        "False",
        "InsufficientPods",
    )


async def test_a_spent_budget_refuses(api, pods, budgets):
    await running(api, pods)
    await budget(api, budgets, healthy=1, desired=1, allowed=0)
    refused = await api.create(f"{pods}/a/eviction", EVICTION)
    assert refused.refusal == (429, "TooManyRequests")
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refused.causes == {
        ("", "DisruptionBudget", "The disruption budget b needs 1 healthy pods and has 1 currently")
    }
    assert "deletionTimestamp" not in (await api.get(f"{pods}/a")).meta


async def test_a_budget_that_nobody_has_looked_at_refuses_for_now(api, pods, budgets):
    await running(api, pods)
    await budget(api, budgets, observed=0)
    refused = await api.create(f"{pods}/a/eviction", EVICTION)
    assert refused.refusal == (429, "TooManyRequests")
    assert refused.details["retryAfterSeconds"] == 10
    assert refused.causes == {
        ("", "DisruptionBudget", "The disruption budget b is still being processed by the server.")
    }


async def test_two_budgets_for_a_pod_are_one_too_many(api, pods, budgets):
    await running(api, pods)
    await budget(api, budgets)
    await budget(api, budgets, name="c")
    refused = await api.create(f"{pods}/a/eviction", EVICTION)
    assert refused.status == 500
    assert refused.message.startswith("This pod has more than one PodDisruptionBudget")


async def test_a_pod_that_is_not_ready_costs_a_healthy_budget_nothing(api, pods, budgets):
    await running(api, pods, ready=False)
    await budget(api, budgets, healthy=1, desired=1, allowed=0)
    assert (await api.create(f"{pods}/a/eviction", EVICTION)).status == 201
    assert (await api.get(f"{budgets}/b"))["status"]["disruptionsAllowed"] == 0


async def test_a_dry_run_evicts_nothing(api, pods, budgets):
    await running(api, pods)
    await budget(api, budgets)
    assert (await api.create(f"{pods}/a/eviction", EVICTION, dryRun="All")).status == 201
    assert "deletionTimestamp" not in (await api.get(f"{pods}/a")).meta
    assert (await api.get(f"{budgets}/b"))["status"]["disruptionsAllowed"] == 1


async def test_an_eviction_of_another_uid_is_a_conflict(api, pods):
    await running(api, pods)
    body = {**EVICTION, "deleteOptions": {"preconditions": {"uid": "x"}}}
    refused = await api.create(f"{pods}/a/eviction", body)
    assert refused.refusal == (409, "Conflict")
    assert "the UID in the precondition (x) does not match the UID in record" in refused.message


async def test_an_eviction_names_its_pod(api, pods):
    await api.create(pods, pod())
    refused = await api.create(f"{pods}/a/eviction", {"metadata": {"name": "b"}})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "name in URL does not match name in Eviction object"


async def test_an_eviction_of_nobody_is_not_found(api, pods):
    assert (await api.create(f"{pods}/a/eviction", EVICTION)).refusal == (404, "NotFound")


async def test_a_pod_on_no_node_has_no_logs_yet(api, pods):
    await api.create(pods, pod())
    assert (await api.get(f"{pods}/a/log")).status == 204


async def test_logs_are_those_of_one_container(api, pods):
    await api.create(pods, pod(containers=[container(), container(name="d")]))
    refused = await api.get(f"{pods}/a/log")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "a container name must be specified for pod a, choose one of: [c d]"
    assert (await api.get(f"{pods}/a/log", container="d")).status == 204
    unknown = await api.get(f"{pods}/a/log", container="x")
    assert unknown.message == "container x is not valid for pod a"


async def test_nobody_is_there_to_be_asked_for_more(api, pods):
    await api.create(pods, pod())
    refused = await api.get(f"{pods}/a/exec", command="x")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "pod a does not have a host assigned"


async def test_ephemeral_containers_are_added_through_their_subresource(api, pods):
    await api.create(pods, pod())
    patch = {"spec": {"restartPolicy": "Never", "ephemeralContainers": [container(name="e")]}}
    changed = await api.merge(f"{pods}/a/ephemeralcontainers", patch)
    assert changed["spec"]["ephemeralContainers"] == [running_container(name="e")]
    assert changed["spec"]["restartPolicy"] == "Always"
    assert changed.meta["generation"] == 2
    refused = await api.merge(f"{pods}/a/ephemeralcontainers", {"spec": {"ephemeralContainers": None}})
    assert refused.fields == {"spec.ephemeralContainers"}


async def test_resources_are_changed_through_their_subresource(api, pods):
    body = pod(containers=[container(resources={"requests": {"cpu": "1"}})])
    await api.create(pods, body)
    more = {"spec": {"containers": [running_container(image="x", resources={"requests": {"cpu": "2"}})]}}
    changed = await api.merge(f"{pods}/a/resize", more)
    assert changed["spec"]["containers"] == [running_container(resources={"requests": {"cpu": "2"}})]
    assert changed.meta["generation"] == 2


async def test_the_quality_of_service_outlives_a_resize(api, pods):
    await api.create(pods, pod())
    more = {"spec": {"containers": [running_container(resources={"requests": {"cpu": "2"}})]}}
    refused = await api.merge(f"{pods}/a/resize", more)
    assert refused.refusal == (422, "Invalid")
    assert {message for _, _, message in refused.causes} == {
        'Invalid value: "BestEffort": Pod QOS Class may not change as a result of resizing'
    }


@pytest.mark.live  # two requests at the same time
@pytest.mark.parametrize("as_collection", [False, True], ids=["alone", "as a collection"])
async def test_a_pod_that_nothing_holds_is_seen_being_deleted_before_it_is_gone(api, pods, as_collection):
    """Controllers that watch pods act in between, so the two events come one after the other."""
    made = await api.create(pods, pod())
    async with api.watch(pods, resourceVersion=made.version) as events:
        deleting = asyncio.ensure_future(api.delete(pods if as_collection else f"{pods}/a"))
        marked = await events.next()
        assert (marked["type"], "deletionTimestamp" in marked["object"]["metadata"]) == ("MODIFIED", True)
        found = await api.get(f"{pods}/a")
        gone = await events.next()
        assert (await deleting).status == 200
    assert found.status == 404 or found.meta["deletionTimestamp"]
    assert gone["type"] == "DELETED"
    assert int(gone["object"]["metadata"]["resourceVersion"]) > int(
        marked["object"]["metadata"]["resourceVersion"]
    )
