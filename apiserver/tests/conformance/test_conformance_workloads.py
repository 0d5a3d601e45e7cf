"""Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers and ControllerRevisions."""

import pytest
from conformance_workloads import (
    LABEL,
    LABELS,
    NOT_NEGATIVE,
    PERCENT,
    SELECTOR,
    claim,
    container,
    forbidden,
    invalid,
    required,
    stored_template,
    template,
    unsupported,
    workload,
)

MISMATCH = "`selector` does not match template `labels`"
APPS = ("deployments", "replicasets", "statefulsets", "daemonsets")
COMMON = {"selector": SELECTOR, "template": stored_template()}


@pytest.fixture
def apps(ns):
    return f"/apis/apps/v1/namespaces/{ns}"


@pytest.mark.parametrize(
    ("plural", "spec", "status"),
    [
        (
            "deployments",
            {
                "replicas": 1,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            },
            {},
        ),
        ("replicasets", {"replicas": 1}, {"replicas": 0}),
        (
            "statefulsets",
            {
                "replicas": 1,
                "serviceName": "",
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"partition": 0, "maxUnavailable": 1},
                },
                "revisionHistoryLimit": 10,
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            },
            {"replicas": 0, "availableReplicas": 0},
        ),
        (
            "daemonsets",
            {
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
                },
                "revisionHistoryLimit": 10,
            },
            {
                "currentNumberScheduled": 0,
                "numberMisscheduled": 0,
                "desiredNumberScheduled": 0,
                "numberReady": 0,
            },
        ),
    ],
)
async def test_a_minimal_workload(api, apps, plural, spec, status):
    made = await api.create(f"{apps}/{plural}", workload())
    assert made["spec"] == {**COMMON, **spec}
    assert made["status"] == status
    assert made.meta["generation"] == 1


async def test_a_minimal_replication_controller_takes_selector_and_labels_from_its_template(api, ns):
    path = f"/api/v1/namespaces/{ns}/replicationcontrollers"
    made = await api.create(path, {"metadata": {"name": "a"}, "spec": {"template": template()}})
    assert made["spec"] == {"replicas": 1, "selector": LABELS, "template": stored_template()}
    assert made["status"] == {"replicas": 0}
    assert made.meta["labels"] == LABELS


@pytest.mark.parametrize("plural", ["deployments", "replicasets", "statefulsets"])
async def test_selector_and_containers_are_required(api, apps, plural):
    refused = await api.create(f"{apps}/{plural}", {"metadata": {"name": "a"}})
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {
        required("spec.selector"),
        invalid("spec.template.metadata.labels", "null", MISMATCH),
        required("spec.template.spec.containers"),
    }
    assert refused.details["group"] == "apps"


async def test_a_daemon_set_needs_the_same_and_says_less(api, apps):
    refused = await api.create(f"{apps}/daemonsets", {"metadata": {"name": "a"}})
    assert refused.causes == {
        invalid("spec.template.metadata.labels", "null", MISMATCH),
        required("spec.template.spec.containers"),
    }


async def test_a_replication_controller_needs_selector_and_template(api, ns):
    refused = await api.create(f"/api/v1/namespaces/{ns}/replicationcontrollers", {"metadata": {"name": "a"}})
    assert refused.causes == {required("spec.selector"), required("spec.template")}


@pytest.mark.parametrize("plural", APPS)
async def test_the_selector_must_match_the_template(api, apps, plural):
    refused = await api.create(f"{apps}/{plural}", workload(selector={"matchLabels": {"app": "b"}}))
    assert refused.causes == {invalid("spec.template.metadata.labels", '{"app":"a"}', MISMATCH)}


@pytest.mark.parametrize(
    ("plural", "kind"),
    [
        ("deployments", "deployment"),
        ("replicasets", "deployment"),
        ("statefulsets", "statefulset"),
        ("daemonsets", "daemonset"),
    ],
)
async def test_an_empty_selector_is_invalid(api, apps, plural, kind):
    refused = await api.create(f"{apps}/{plural}", workload(selector={}))
    assert refused.causes == {invalid("spec.selector", "{}", f"empty selector is invalid for {kind}")}


async def test_what_a_selector_must_be(api, apps):
    expressions = [{"key": "a", "operator": "In"}, {"key": "b", "operator": "Foo"}]
    refused = await api.create(f"{apps}/deployments", workload(selector={"matchExpressions": expressions}))
    given = '{"matchExpressions":[{"key":"a","operator":"In"},{"key":"b","operator":"Foo"}]}'
    assert refused.causes == {
        required(
            "spec.selector.matchExpressions[0].values",
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        invalid("spec.selector.matchExpressions[1].operator", '"Foo"', "not a valid selector operator"),
        invalid("spec.selector", given, "invalid label selector"),
    }


async def test_expressions_select_as_labels_do(api, apps):
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}
    assert (await api.create(f"{apps}/deployments", workload(selector=selector))).status == 201


@pytest.mark.parametrize("plural", APPS)
async def test_the_selector_cannot_be_changed(api, apps, plural):
    made = await api.create(f"{apps}/{plural}", workload())
    body = {**made.body, "spec": workload(selector={"matchLabels": {"app": "b"}}, template=other())["spec"]}
    refused = await api.replace(f"{apps}/{plural}/a", body)
    assert refused.refusal == (422, "Invalid")
    if plural != "statefulsets":
        expected = {invalid("spec.selector", '{"matchLabels":{"app":"b"}}', "field is immutable")}
        assert refused.causes == expected


@pytest.mark.parametrize(
    ("plural", "owner"),
    [
        ("deployments", "ReplicaSet"),
        ("replicasets", "ReplicaSet"),
        ("statefulsets", "StatefulSet"),
        ("daemonsets", "DaemonSet"),
    ],
)
async def test_their_pods_run_always(api, apps, plural, owner):
    ending = template(restartPolicy="Never", activeDeadlineSeconds=5)
    refused = await api.create(f"{apps}/{plural}", workload(template=ending))
    assert refused.causes == {
        unsupported("spec.template.spec.restartPolicy", '"Never"', "Always"),
        forbidden(
            "spec.template.spec.activeDeadlineSeconds", f"activeDeadlineSeconds in {owner} is not Supported"
        ),
    }


@pytest.mark.parametrize("plural", APPS)
async def test_the_rules_of_pods_hold_in_templates(api, apps, plural):
    spec = {"containers": [container(name="A", image="")], "volumes": [{"name": "v", "secret": {}}]}
    refused = await api.create(f"{apps}/{plural}", workload(template={**template(), "spec": spec}))
    assert refused.causes == {
        required("spec.template.spec.volumes[0].secret.secretName"),
        invalid("spec.template.spec.containers[0].name", '"A"', LABEL),
        required("spec.template.spec.containers[0].image"),
    }


@pytest.mark.parametrize("plural", ["deployments", "replicasets", "statefulsets"])
async def test_replicas_are_not_negative(api, apps, plural):
    refused = await api.create(f"{apps}/{plural}", workload(replicas=-1))
    assert refused.causes == {invalid("spec.replicas", "-1", NOT_NEGATIVE)}


ROLLING = "spec.strategy.rollingUpdate"


@pytest.mark.parametrize(
    ("strategy", "causes"),
    [
        (
            {"type": "X"},
            {unsupported("spec.strategy", '{"Type":"X","RollingUpdate":null}', "Recreate", "RollingUpdate")},
        ),
        (
            {"type": "Recreate", "rollingUpdate": {}},
            {forbidden(ROLLING, "may not be specified when strategy `type` is 'Recreate'")},
        ),
        (
            {"rollingUpdate": {"maxSurge": "x", "maxUnavailable": -1}},
            {
                invalid(f"{ROLLING}.maxUnavailable", "-1", NOT_NEGATIVE),
                invalid(f"{ROLLING}.maxSurge", '"x"', PERCENT),
            },
        ),
        (
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
            {invalid(f"{ROLLING}.maxUnavailable", '"0%"', "may not be 0 when `maxSurge` is 0")},
        ),
        (
            {"rollingUpdate": {"maxUnavailable": "101%"}},
            {invalid(f"{ROLLING}.maxUnavailable", '"101%"', "must not be greater than 100%")},
        ),
    ],
)
async def test_what_the_strategy_of_a_deployment_must_be(api, apps, strategy, causes):
    refused = await api.create(f"{apps}/deployments", workload(strategy=strategy))
    assert refused.causes == causes


async def test_the_deadline_of_a_deployment_is_later_than_ready(api, apps):
    refused = await api.create(f"{apps}/deployments", workload(minReadySeconds=600, revisionHistoryLimit=-1))
    assert refused.causes == {
        invalid("spec.revisionHistoryLimit", "-1", NOT_NEGATIVE),
        invalid("spec.progressDeadlineSeconds", "600", "must be greater than minReadySeconds"),
    }


async def test_spec_and_annotations_of_a_deployment_count_and_labels_do_not(api, apps):
    path = f"{apps}/deployments/a"
    await api.create(f"{apps}/deployments", workload())
    labelled = await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    annotated = await api.merge(path, {"metadata": {"annotations": {"a": "b"}}})
    scaled = await api.merge(path, {"spec": {"replicas": 3}})
    assert [answer.meta["generation"] for answer in (labelled, annotated, scaled)] == [1, 2, 3]


@pytest.mark.parametrize("plural", ["replicasets", "statefulsets", "daemonsets"])
async def test_of_other_workloads_only_the_spec_counts(api, apps, plural):
    path = f"{apps}/{plural}/a"
    await api.create(f"{apps}/{plural}", workload())
    annotated = await api.merge(path, {"metadata": {"annotations": {"a": "b"}}})
    changed = await api.merge(path, {"spec": {"minReadySeconds": 3}})
    assert [answer.meta["generation"] for answer in (annotated, changed)] == [1, 2]


async def test_the_status_of_a_deployment_adds_up(api, apps):
    await api.create(f"{apps}/deployments", workload())
    status = {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3}
    refused = await api.merge(f"{apps}/deployments/a/status", {"status": status})
    more = "cannot be greater than status.replicas"
    assert refused.causes == {
        invalid("status.readyReplicas", "2", more),
        invalid("status.availableReplicas", "3", more),
        invalid("status.availableReplicas", "3", "cannot be greater than readyReplicas"),
    }


async def test_through_the_status_of_a_deployment_annotations_can_be_changed_and_labels_not(api, apps):
    await api.create(f"{apps}/deployments", workload())
    patch = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {"replicas": 5},
        "status": {"replicas": 1},
    }
    changed = await api.merge(f"{apps}/deployments/a/status", patch)
    assert changed["status"] == {"replicas": 1}
    assert changed["spec"]["replicas"] == 1
    assert changed.meta["annotations"] == {"a": "b"}
    assert "labels" not in changed.meta
    assert changed.meta["generation"] == 1


async def test_the_status_of_a_replica_set_adds_up(api, apps):
    await api.create(f"{apps}/replicasets", workload())
    refused = await api.merge(f"{apps}/replicasets/a/status", {"status": {"fullyLabeledReplicas": 1}})
    problem = "cannot be greater than status.replicas"
    assert refused.causes == {invalid("status.fullyLabeledReplicas", "1", problem)}


async def test_collisions_are_not_uncounted(api, apps):
    await api.create(f"{apps}/deployments", workload())
    await api.merge(f"{apps}/deployments/a/status", {"status": {"collisionCount": 2}})
    refused = await api.merge(f"{apps}/deployments/a/status", {"status": {"collisionCount": 1}})
    assert refused.causes == {invalid("status.collisionCount", "1", "cannot be decremented")}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"podManagementPolicy": "x"},
            {invalid("spec.podManagementPolicy", '"x"', "must be 'OrderedReady' or 'Parallel'")},
        ),
        (
            {"updateStrategy": {"type": "x"}},
            {
                invalid(
                    "spec.updateStrategy",
                    '{"Type":"x","RollingUpdate":null}',
                    "must be 'RollingUpdate' or 'OnDelete'",
                )
            },
        ),
        (
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
            {
                invalid(
                    "spec.updateStrategy.rollingUpdate",
                    '{"Partition":1,"MaxUnavailable":null}',
                    "only allowed for updateStrategy 'RollingUpdate'",
                )
            },
        ),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "x"}},
            {unsupported("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", '"x"', "Retain", "Delete")},
        ),
        ({"serviceName": "A"}, {invalid("spec.serviceName", '"A"', LABEL)}),
        ({"ordinals": {"start": -1}}, {invalid("spec.ordinals.start", "-1", NOT_NEGATIVE)}),
        (
            {"volumeClaimTemplates": [{"metadata": {"name": "v"}}]},
            {
                required(
                    "spec.volumeClaimTemplates[0].spec.accessModes", "at least 1 access mode is required"
                ),
                required("spec.volumeClaimTemplates[0].spec.resources[storage]"),
            },
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_a_stateful_set_must_be(api, apps, spec, causes):
    refused = await api.create(f"{apps}/statefulsets", workload(**spec))
    assert refused.causes == causes


async def test_the_name_of_a_stateful_set_has_no_dots(api, apps):
    refused = await api.create(f"{apps}/statefulsets", workload("a.b"))
    assert refused.causes == {invalid("metadata.name", '"a.b"', "must not contain dots")}


async def test_claims_of_a_stateful_set_are_volumes_of_its_pods(api, apps):
    mounting = template(containers=[container(volumeMounts=[{"name": "v", "mountPath": "/v"}])])
    body = workload(template=mounting, volumeClaimTemplates=[claim("v")])
    made = await api.create(f"{apps}/statefulsets", body)
    assert made["spec"]["volumeClaimTemplates"] == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "v"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeMode": "Filesystem",
            },
            "status": {"phase": "Pending"},
        }
    ]


CLAIM = (
    '[{"name":"v","Spec":{"AccessModes":["ReadWriteOnce"],"Selector":null,'
    '"Resources":{"Limits":null,"Requests":{"storage":"1Gi"}},"VolumeName":"","StorageClassName":null,'
    '"VolumeMode":"Filesystem","DataSource":null,"DataSourceRef":null,"VolumeAttributesClassName":null},'
    '"Status":{"Phase":"Pending","AccessModes":null,"Capacity":null,"Conditions":null,"AllocatedResources":null,'
    '"AllocatedResourceStatuses":null,"CurrentVolumeAttributesClassName":null,"ModifyVolumeStatus":null,'
    '"HealthStatus":null}}]'
)
"""How a claim of a StatefulSet is shown when it is refused."""


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("serviceName", "x", '"x"'),
        ("podManagementPolicy", "Parallel", '"Parallel"'),
        ("volumeClaimTemplates", [claim("v")], CLAIM),
    ],
    ids=["serviceName", "podManagementPolicy", "volumeClaimTemplates"],
)
async def test_most_of_a_stateful_set_cannot_be_changed(api, apps, field, value, shown):
    await api.create(f"{apps}/statefulsets", workload())
    refused = await api.merge(f"{apps}/statefulsets/a", {"spec": {field: value}})
    assert refused.causes == {invalid(f"spec.{field}", shown, "field is immutable")}


async def test_replicas_and_template_of_a_stateful_set_can_be_changed(api, apps):
    await api.create(f"{apps}/statefulsets", workload())
    patch = {"spec": {"replicas": 3, "template": {"metadata": {"labels": {"b": "c"}}}}}
    assert (await api.merge(f"{apps}/statefulsets/a", patch)).meta["generation"] == 2


@pytest.mark.parametrize(
    ("strategy", "causes"),
    [
        (
            {"type": "x"},
            {
                unsupported(
                    "spec.updateStrategy",
                    '{"Type":"x","RollingUpdate":null}',
                    "RollingUpdate",
                    "OnDelete",
                )
            },
        ),
        (
            {"rollingUpdate": {"maxSurge": 1}},
            {
                invalid(
                    "spec.updateStrategy.rollingUpdate.maxSurge",
                    "1",
                    "may not be set when maxUnavailable is non-zero",
                )
            },
        ),
        (
            {"rollingUpdate": {"maxUnavailable": 0}},
            {required("spec.updateStrategy.rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0")},
        ),
    ],
)
async def test_what_the_strategy_of_a_daemon_set_must_be(api, apps, strategy, causes):
    refused = await api.create(f"{apps}/daemonsets", workload(updateStrategy=strategy))
    assert refused.causes == causes


async def test_an_annotation_counts_the_templates_of_a_daemon_set(api, apps):
    counter = "deprecated.daemonset.template.generation"
    made = await api.create(f"{apps}/daemonsets", workload())
    assert made.meta["annotations"] == {counter: "1"}
    said = await api.merge(f"{apps}/daemonsets/a", {"metadata": {"annotations": {counter: "7"}}})
    assert said.version == made.version
    changed = await api.merge(
        f"{apps}/daemonsets/a", {"spec": {"template": {"metadata": {"labels": {"b": "c"}}}}}
    )
    assert changed.meta["annotations"] == {counter: "2"}
    assert changed.meta["generation"] == 2


async def test_a_replace_may_leave_out_what_is_defaulted(api, apps):
    for plural in APPS:
        made = await api.create(f"{apps}/{plural}", workload())
        assert (await api.replace(f"{apps}/{plural}/a", workload())).version == made.version, plural


async def test_a_controller_revision_has_data_that_cannot_be_changed(api, apps):
    path = f"{apps}/controllerrevisions"
    made = await api.create(path, {"metadata": {"name": "a"}, "revision": 1, "data": {"a": 1}})
    assert (made["revision"], made["data"]) == (1, {"a": 1})
    assert "generation" not in made.meta
    refused = await api.merge(f"{path}/a", {"data": {"a": 2}})
    assert refused.causes == {invalid("data", '{"a":2}', "field is immutable")}


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        ({}, {required("data", "data is mandatory")}),
        ({"data": "x"}, {required("data", "data must be a valid JSON object")}),
        ({"data": {}, "revision": -1}, {invalid("revision", "-1", NOT_NEGATIVE)}),
    ],
)
async def test_what_a_controller_revision_must_be(api, apps, body, causes):
    refused = await api.create(f"{apps}/controllerrevisions", {"metadata": {"name": "a"}, **body})
    assert refused.causes == causes


@pytest.mark.parametrize("plural", APPS)
async def test_workloads_are_selected_by_name_only(api, apps, plural):
    refused = await api.get(f"{apps}/{plural}", fieldSelector="status.replicas=1")
    assert refused.refusal == (400, "BadRequest")
    known = '"metadata.name", "metadata.namespace"'
    assert refused.message == f'"status.replicas" is not a known field selector: only {known}'


async def test_a_creator_owns_what_it_said_and_what_was_defaulted(api, apps):
    made = await api.create(f"{apps}/deployments", workload(), fieldManager="one")
    (entry,) = made.meta["managedFields"]
    assert entry["fieldsV1"] == {
        "f:spec": {
            "f:progressDeadlineSeconds": {},
            "f:replicas": {},
            "f:revisionHistoryLimit": {},
            "f:selector": {},
            "f:strategy": {
                "f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}},
                "f:type": {},
            },
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"c"}': {
                            ".": {},
                            "f:image": {},
                            "f:imagePullPolicy": {},
                            "f:name": {},
                            "f:resources": {},
                            "f:terminationMessagePath": {},
                            "f:terminationMessagePolicy": {},
                        }
                    },
                    "f:dnsPolicy": {},
                    "f:restartPolicy": {},
                    "f:schedulerName": {},
                    "f:securityContext": {},
                    "f:terminationGracePeriodSeconds": {},
                },
            },
        }
    }


async def test_an_applier_owns_only_what_it_said(api, apps):
    body = {"apiVersion": "apps/v1", "kind": "Deployment", **workload()}
    made = await api.apply(f"{apps}/deployments/a", body, "one")
    (entry,) = made.meta["managedFields"]
    assert entry["fieldsV1"] == {
        "f:spec": {
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}}}},
            },
        }
    }
    again = await api.apply(f"{apps}/deployments/a", body, "one")
    assert again.version == made.version


def other():
    return {**template(), "metadata": {"labels": {"app": "b"}}}
