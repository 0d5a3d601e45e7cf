"""Pods: validation, defaults, and what may be changed."""

import pytest
from conformance_workloads import (
    LABEL,
    QUALIFIED,
    STORED_POD,
    SUBDOMAIN,
    TOLERATIONS,
    container,
    duplicate,
    forbidden,
    invalid,
    not_found,
    pod,
    pod_of,
    required,
    running_container,
    stored_template,
    unsupported,
)

C = "spec.containers[0]"


@pytest.fixture
def pods(ns):
    return f"/api/v1/namespaces/{ns}/pods"


async def test_a_minimal_pod(api, pods):
    made = await api.create(pods, pod())
    assert made["spec"] == STORED_POD
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made.meta["generation"] == 1


async def test_a_pod_without_spec_has_no_containers(api, pods):
    refused = await api.create(pods, {"metadata": {"name": "a"}})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == 'Pod "a" is invalid: spec.containers: Required value'
    assert refused.details["kind"] == "Pod"


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"name": ""}, {required(f"{C}.name")}),
        ({"name": "A_b"}, {invalid(f"{C}.name", '"A_b"', LABEL)}),
        ({"name": "a.b"}, {invalid(f"{C}.name", '"a.b"', "must not contain dots")}),
        ({"name": "x" * 64}, {invalid(f"{C}.name", f'"{"x" * 64}"', "must be no more than 63 characters")}),
        ({"image": ""}, {required(f"{C}.image")}),
        ({"image": " a"}, {invalid(f"{C}.image", '" a"', "must not have leading or trailing whitespace")}),
        (
            {"imagePullPolicy": "x"},
            {unsupported(f"{C}.imagePullPolicy", '"x"', "Always", "IfNotPresent", "Never")},
        ),
        (
            {"terminationMessagePolicy": "x"},
            {unsupported(f"{C}.terminationMessagePolicy", '"x"', "File", "FallbackToLogsOnError")},
        ),
        ({"ports": [{"name": "x"}]}, {required(f"{C}.ports[0].containerPort")}),
        (
            {"ports": [{"containerPort": 70000}]},
            {invalid(f"{C}.ports[0].containerPort", "70000", "must be between 1 and 65535, inclusive")},
        ),
        (
            {"ports": [{"containerPort": 1, "hostPort": -1}]},
            {invalid(f"{C}.ports[0].hostPort", "-1", "must be between 1 and 65535, inclusive")},
        ),
        (
            {"ports": [{"containerPort": 1, "protocol": "x"}]},
            {unsupported(f"{C}.ports[0].protocol", '"x"', "SCTP", "TCP", "UDP")},
        ),
        (
            {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]},
            {duplicate(f"{C}.ports[1].name", '"a"')},
        ),
        (
            {"ports": [{"containerPort": 1, "name": "--1"}]},
            {
                invalid(f"{C}.ports[0].name", '"--1"', problem)
                for problem in (
                    "must contain at least one letter (a-z)",
                    "must not contain consecutive hyphens",
                    "must not begin or end with a hyphen",
                )
            },
        ),
        (
            {"ports": [{"containerPort": 1, "name": "a" * 16}]},
            {invalid(f"{C}.ports[0].name", f'"{"a" * 16}"', "must be no more than 15 characters")},
        ),
        (
            {"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]},
            {duplicate(f"{C}.ports[1].hostPort", '"TCP//5"')},
        ),
        ({"env": [{"value": "x"}]}, {required(f"{C}.env[0].name")}),
        (
            {"env": [{"name": "a=b"}]},
            {
                invalid(
                    f"{C}.env[0].name",
                    '"a=b"',
                    "a valid environment variable name must consist only of printable ASCII characters other than '='",
                )
            },
        ),
        (
            {"env": [{"name": "a", "valueFrom": {}}]},
            {
                invalid(
                    f"{C}.env[0].valueFrom",
                    '""',
                    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or "
                    "`fileKeyRef`",
                )
            },
        ),
        (
            {"env": [{"name": "a", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            {invalid(f"{C}.env[0].valueFrom", '""', "may not be specified when `value` is not empty")},
        ),
        (
            {"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "status.foo"}}}]},
            {
                invalid(
                    f"{C}.env[0].valueFrom.fieldRef.fieldPath",
                    '"status.foo"',
                    "error converting fieldPath: field label not supported: status.foo",
                )
            },
        ),
        (
            {"env": [{"name": "a", "valueFrom": {"secretKeyRef": {"name": "s"}}}]},
            {required(f"{C}.env[0].valueFrom.secretKeyRef.key")},
        ),
        (
            {"envFrom": [{"configMapRef": {"name": ""}}]},
            {required(f"{C}.envFrom[0].configMapRef.name")},
        ),
        (
            {"envFrom": [{"prefix": "a"}]},
            {invalid(f"{C}.envFrom", '""', "must specify one of: `configMapRef` or `secretRef`")},
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {not_found(f"{C}.volumeMounts[0].name", "v")},
        ),
        (
            {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
            {invalid(f"{C}.resources.requests", '"2"', "must be less than or equal to cpu limit of 1")},
        ),
        (
            {"resources": {"requests": {"cpu": "-1"}}},
            {invalid(f"{C}.resources.requests[cpu]", '"-1"', "must be greater than or equal to 0")},
        ),
        (
            {"resources": {"requests": {"pods": "1"}}},
            {
                invalid(
                    f"{C}.resources.requests[pods]", '"pods"', "must be a standard resource for containers"
                )
            },
        ),
        (
            {"resources": {"requests": {"a.b/c": "1"}}},
            {required(f"{C}.resources.limits", "Limit must be set for non overcommitable resources")},
        ),
        ({"livenessProbe": {}}, {required(f"{C}.livenessProbe", "must specify a handler type")}),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}},
            {invalid(f"{C}.livenessProbe.successThreshold", "2", "must be 1")},
        ),
        (
            {"readinessProbe": {"tcpSocket": {"port": 0}, "timeoutSeconds": -1}},
            {
                invalid(f"{C}.readinessProbe.tcpSocket.port", "0", "must be between 1 and 65535, inclusive"),
                invalid(f"{C}.readinessProbe.timeoutSeconds", "-1", "must be greater than or equal to 0"),
            },
        ),
        (
            {"startupProbe": {"exec": {"command": ["x"]}, "httpGet": {"port": 80}}},
            {forbidden(f"{C}.startupProbe.httpGet", "may not specify more than 1 handler type")},
        ),
        ({"lifecycle": {"preStop": {"exec": {}}}}, {required(f"{C}.lifecycle.preStop.exec.command")}),
        (
            {"securityContext": {"runAsUser": -1}},
            {invalid(f"{C}.securityContext.runAsUser", "-1", "must be between 0 and 2147483647, inclusive")},
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_a_container_must_be(api, pods, fields, causes):
    refused = await api.create(pods, pod(containers=[container(**fields)]))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"restartPolicy": "x"},
            {unsupported("spec.restartPolicy", '"x"', "Always", "OnFailure", "Never")},
        ),
        (
            {"dnsPolicy": "x"},
            {
                unsupported(
                    "spec.dnsPolicy", '"x"', "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"
                )
            },
        ),
        (
            {"dnsPolicy": "None"},
            {required("spec.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")},
        ),
        ({"containers": [container(), container()]}, {duplicate("spec.containers[1].name", '"c"')}),
        ({"initContainers": [container()]}, {duplicate("spec.initContainers[0].name", '"c"')}),
        (
            {"initContainers": [container(name="i", lifecycle={})]},
            {
                forbidden(
                    "spec.initContainers[0].lifecycle",
                    "may not be set for init containers without restartPolicy=Always",
                )
            },
        ),
        (
            {"ephemeralContainers": [container(name="e")]},
            {forbidden("spec.ephemeralContainers", "cannot be set on create")},
        ),
        (
            {"volumes": [{"name": "v"}, {"name": "v"}]},
            {duplicate("spec.volumes[1].name", '"v"')},
        ),
        ({"volumes": [{"name": "A"}]}, {invalid("spec.volumes[0].name", '"A"', LABEL)}),
        ({"volumes": [{"emptyDir": {}}]}, {required("spec.volumes[0].name")}),
        ({"volumes": [{"name": "v", "secret": {}}]}, {required("spec.volumes[0].secret.secretName")}),
        (
            {"volumes": [{"name": "v", "configMap": {"name": "x", "items": [{"key": "k", "path": "/p"}]}}]},
            {invalid("spec.volumes[0].configMap.items[0].path", '"/p"', "must be a relative path")},
        ),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}, "emptyDir": {}}]},
            {forbidden("spec.volumes[0].secret", "may not specify more than 1 volume type")},
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
            {required("spec.volumes[0].persistentVolumeClaim.claimName")},
        ),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            {
                forbidden(
                    "spec.volumes[0].projected.sources[0].serviceAccountToken",
                    "must not be specified when serviceAccountName is not set",
                )
            },
        ),
        (
            {
                "volumes": [{"name": "v"}],
                "containers": [
                    container(
                        volumeMounts=[{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]
                    )
                ],
            },
            {invalid(f"{C}.volumeMounts[1].mountPath", '"/a"', "must be unique")},
        ),
        ({"nodeSelector": {"a b": "c"}}, {invalid("spec.nodeSelector", '"a b"', QUALIFIED)}),
        (
            {"tolerations": [{"value": "x"}]},
            {
                invalid(
                    "spec.tolerations[0].operator",
                    '""',
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"',
                )
            },
        ),
        (
            {"tolerations": [{"key": "a", "effect": "x"}]},
            {unsupported("spec.tolerations[0].effect", '"x"', "NoSchedule", "PreferNoSchedule", "NoExecute")},
        ),
        (
            {"activeDeadlineSeconds": 0},
            {invalid("spec.activeDeadlineSeconds", "0", "must be between 1 and 2147483647, inclusive")},
        ),
        ({"hostname": "A"}, {invalid("spec.hostname", '"A"', LABEL)}),
        ({"serviceAccountName": "A"}, {invalid("spec.serviceAccountName", '"A"', SUBDOMAIN)}),
        ({"nodeName": "A"}, {invalid("spec.nodeName", '"A"', SUBDOMAIN)}),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]
                    }
                }
            },
            {
                required(
                    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
                    "can not be empty",
                ),
                invalid(
                    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
                    '""',
                    "name part must be non-empty",
                ),
                invalid(
                    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
                    '""',
                    QUALIFIED,
                ),
            },
        ),
        (
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            {
                required(
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
                    "must have at least one node selector term",
                )
            },
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "labelSelector": {}}]},
            {
                invalid("spec.topologySpreadConstraints[0].maxSkew", "0", "must be greater than zero"),
                required("spec.topologySpreadConstraints[0].topologyKey", "can not be empty"),
                unsupported(
                    "spec.topologySpreadConstraints[0].whenUnsatisfiable",
                    '""',
                    "DoNotSchedule",
                    "ScheduleAnyway",
                ),
            },
        ),
        (
            {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
            {duplicate("spec.schedulingGates[1]", '"a"')},
        ),
        (
            {"nodeName": "n", "schedulingGates": [{"name": "a"}]},
            {forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")},
        ),
        (
            {"securityContext": {"fsGroup": -1, "seccompProfile": {"type": "x"}}},
            {
                invalid("spec.securityContext.fsGroup", "-1", "must be between 0 and 2147483647, inclusive"),
                unsupported(
                    "spec.securityContext.seccompProfile.type",
                    '"x"',
                    "Localhost",
                    "RuntimeDefault",
                    "Unconfined",
                ),
            },
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_a_pod_must_be(api, pods, spec, causes):
    refused = await api.create(pods, pod(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_quantity_without_form_is_a_bad_request(api, pods):
    refused = await api.create(pods, pod_of(resources={"limits": {"cpu": "much"}}))
    assert refused.refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        (f"nginx@sha256:{'0' * 64}", "IfNotPresent"),
    ],
)
async def test_the_tag_of_an_image_says_when_it_is_pulled(api, pods, image, policy):
    made = await api.create(pods, pod_of(image=image))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


async def test_requests_follow_limits_in_canonical_form(api, pods):
    made = await api.create(
        pods, pod_of(resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}})
    )
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Burstable"),
        ({}, "BestEffort"),
    ],
)
async def test_resources_decide_the_quality_of_service(api, pods, resources, quality):
    made = await api.create(pods, pod_of(resources=resources))
    assert made["status"] == {"phase": "Pending", "qosClass": quality}


async def test_defaults_of_what_is_in_a_container(api, pods):
    made = await api.create(
        pods,
        pod_of(
            ports=[{"containerPort": 80}],
            livenessProbe={"httpGet": {"port": 80}},
            readinessProbe={"grpc": {"port": 1}},
            lifecycle={"preStop": {"httpGet": {"port": "x"}}},
            env=[
                {"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "b", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
        ),
    )
    often = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert made["spec"]["containers"] == [
        running_container(
            ports=[{"containerPort": 80, "protocol": "TCP"}],
            livenessProbe={"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, **often},
            readinessProbe={"grpc": {"port": 1, "service": ""}, **often},
            lifecycle={"preStop": {"httpGet": {"path": "/", "port": "x", "scheme": "HTTP"}}},
            env=[
                {"name": "a", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                {"name": "b", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}},
            ],
        )
    ]


async def test_defaults_of_volumes(api, pods):
    labels = {"path": "x", "fieldRef": {"fieldPath": "metadata.labels"}}
    told = {"path": "x", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}}
    made = await api.create(
        pods,
        pod(
            serviceAccountName="s",
            volumes=[
                {"name": "a"},
                {"name": "b", "secret": {"secretName": "s"}},
                {"name": "c", "configMap": {"name": "s"}},
                {"name": "d", "downwardAPI": {"items": [labels]}},
                {
                    "name": "e",
                    "projected": {
                        "sources": [
                            {"downwardAPI": {"items": [labels]}},
                            {"serviceAccountToken": {"path": "t"}},
                        ]
                    },
                },
                {"name": "f", "hostPath": {"path": "/"}},
                {
                    "name": "g",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "spec": {
                                "accessModes": ["ReadWriteOnce"],
                                "resources": {"requests": {"storage": "1Gi"}},
                            }
                        }
                    },
                },
            ],
        ),
    )
    assert made["spec"]["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "c", "configMap": {"name": "s", "defaultMode": 420}},
        {"name": "d", "downwardAPI": {"items": [told], "defaultMode": 420}},
        {
            "name": "e",
            "projected": {
                "sources": [
                    {"downwardAPI": {"items": [told]}},
                    {"serviceAccountToken": {"expirationSeconds": 3600, "path": "t"}},
                ],
                "defaultMode": 420,
            },
        },
        {"name": "f", "hostPath": {"path": "/", "type": ""}},
        {
            "name": "g",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "metadata": {},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                        "volumeMode": "Filesystem",
                    },
                }
            },
        },
    ]
    assert made["spec"]["serviceAccount"] == "s"


async def test_the_old_name_of_the_service_account_is_the_new_one(api, pods):
    made = await api.create(pods, pod(serviceAccount="s"))
    assert made["spec"]["serviceAccountName"] == "s"


async def test_a_pod_on_the_hosts_network_has_its_ports_there(api, pods):
    made = await api.create(
        pods, pod(hostNetwork=True, containers=[container(ports=[{"containerPort": 80}])])
    )
    assert made["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
    ]


async def test_a_negative_grace_period_is_one_second(api, pods):
    made = await api.create(pods, pod(terminationGracePeriodSeconds=-5))
    assert made["spec"]["terminationGracePeriodSeconds"] == 1


async def test_a_gated_pod_says_so(api, pods):
    made = await api.create(pods, pod(schedulingGates=[{"name": "a"}]))
    condition = {**made["status"]["conditions"][0]}
    del condition["lastTransitionTime"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


async def test_a_status_given_with_a_new_pod_is_dropped(api, pods):
    made = await api.create(pods, {**pod(), "status": {"phase": "Running", "podIP": "1.2.3.4"}})
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_priority_class_that_is_not_there_is_forbidden(api, pods):
    refused = await api.create(pods, pod(priorityClassName="none"))
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == 'pods "a" is forbidden: no PriorityClass with name none was found'


async def test_the_classes_of_the_system_have_their_priority(api, pods):
    made = await api.create(pods, pod(priorityClassName="system-cluster-critical"))
    assert made["spec"]["priority"] == 2_000_000_000


async def test_a_class_says_priority_and_preemption(api, pods, name):
    body = {"metadata": {"name": name}, "value": 7, "preemptionPolicy": "Never"}
    assert (await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)).status == 201
    made = await api.create(pods, pod(priorityClassName=name))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
    refused = await api.create(
        pods, pod("b", priorityClassName=name, preemptionPolicy="PreemptLowerPriority")
    )
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == (
        'pods "b" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in '
        "pod spec; priority admission controller computed Never from the given PriorityClass name"
    )


async def test_a_priority_is_not_said_by_its_number(api, pods):
    assert (await api.create(pods, pod(priority=5))).refusal == (403, "Forbidden")


async def test_the_image_can_be_changed_and_counts(api, pods):
    await api.create(pods, pod())
    changed = await api.json_patch(
        f"{pods}/a", {"op": "replace", "path": "/spec/containers/0/image", "value": "x:1"}
    )
    assert changed["spec"]["containers"] == [running_container(image="x:1")]
    assert changed.meta["generation"] == 2


async def test_labels_do_not_count(api, pods):
    await api.create(pods, pod())
    changed = await api.merge(f"{pods}/a", {"metadata": {"labels": {"a": "b"}}})
    assert changed.meta["generation"] == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"restartPolicy": "Never"},
        {"nodeName": "n"},
        {"terminationGracePeriodSeconds": 5},
        {"containers": [running_container(env=[{"name": "a", "value": "b"}])]},
        {"hostname": "b"},
    ],
    ids=lambda value: next(iter(value)),
)
async def test_nothing_else_of_a_pod_can_be_changed(api, pods, spec):
    await api.create(pods, pod())
    refused = await api.merge(f"{pods}/a", {"spec": spec})
    assert refused.refusal == (422, "Invalid")
    # The server appends a diff of its internal types.
    told = {(field, reason, message.partition("\n")[0]) for field, reason, message in refused.causes}
    assert told == {
        forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        )
    }


async def test_containers_can_be_neither_added_nor_removed(api, pods):
    await api.create(pods, pod())
    both = [running_container(), running_container(name="d")]
    refused = await api.merge(f"{pods}/a", {"spec": {"containers": both}})
    assert refused.causes == {forbidden("spec.containers", "pod updates may not add or remove containers")}


async def test_a_deadline_can_be_set_and_only_shortened(api, pods):
    await api.create(pods, pod())
    assert (await api.merge(f"{pods}/a", {"spec": {"activeDeadlineSeconds": 5}})).status == 200
    refused = await api.merge(f"{pods}/a", {"spec": {"activeDeadlineSeconds": 6}})
    problem = "must be less than or equal to previous value"
    assert refused.causes == {invalid("spec.activeDeadlineSeconds", "6", problem)}


async def test_tolerations_can_only_be_added(api, pods):
    await api.create(pods, pod(tolerations=[{"key": "a", "operator": "Exists"}]))
    more = [{"key": key, "operator": "Exists"} for key in ("a", "b")]
    changed = await api.merge(f"{pods}/a", {"spec": {"tolerations": more + TOLERATIONS}})
    assert changed.status == 200
    refused = await api.merge(f"{pods}/a", {"spec": {"tolerations": None}})
    problem = "existing toleration can not be modified except its tolerationSeconds"
    assert refused.causes == {forbidden("spec.tolerations", problem)}


async def test_gates_can_only_be_removed(api, pods):
    await api.create(pods, pod(schedulingGates=[{"name": "a"}]))
    refused = await api.merge(f"{pods}/a", {"spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}]}})
    problem = "only deletion is allowed, but found new scheduling gate 'b'"
    assert refused.causes == {forbidden("spec.schedulingGates[1].name", problem)}
    opened = await api.merge(f"{pods}/a", {"spec": {"schedulingGates": None, "nodeSelector": {"a": "b"}}})
    assert opened.status == 200
    assert "schedulingGates" not in opened["spec"]


async def test_a_replace_may_leave_out_what_the_server_added(api, pods):
    made = await api.create(pods, pod())
    assert (await api.replace(f"{pods}/a", pod())).version == made.version


async def test_a_write_of_the_pod_keeps_the_status(api, pods):
    await api.create(pods, pod())
    changed = await api.merge(
        f"{pods}/a", {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    )
    assert changed["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_write_of_the_status_keeps_spec_and_owners(api, pods):
    await api.create(pods, pod())
    owners = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}]
    changed = await api.merge(
        f"{pods}/a/status",
        {
            "metadata": {"ownerReferences": owners, "labels": {"a": "b"}},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running"},
        },
    )
    assert changed["spec"] == STORED_POD
    assert changed["status"] == {"phase": "Running", "qosClass": "BestEffort"}
    assert changed.meta["labels"] == {"a": "b"}
    assert "ownerReferences" not in changed.meta
    assert changed.meta["generation"] == 1


async def test_the_first_address_is_the_address(api, pods):
    await api.create(pods, pod())
    one = await api.merge(f"{pods}/a/status", {"status": {"podIP": "10.0.0.1"}})
    assert one["status"]["podIPs"] == [{"ip": "10.0.0.1"}]
    listed = await api.merge(f"{pods}/a/status", {"status": {"podIP": None, "podIPs": [{"ip": "10.0.0.2"}]}})
    assert listed["status"]["podIP"] == "10.0.0.2"


async def test_the_quality_of_service_cannot_be_changed(api, pods):
    await api.create(pods, pod())
    refused = await api.merge(f"{pods}/a/status", {"status": {"qosClass": "Guaranteed"}})
    assert refused.causes == {invalid("status.qosClass", '"Guaranteed"', "field is immutable")}


async def test_a_container_that_has_ended_stays_so(api, pods):
    await api.create(pods, pod(restartPolicy="Never"))
    ended = {"name": "c", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    over = {**ended, "state": {"terminated": {"exitCode": 0}}}
    await api.merge(f"{pods}/a/status", {"status": {"containerStatuses": [over]}})
    again = {**ended, "state": {"running": {}}}
    refused = await api.merge(f"{pods}/a/status", {"status": {"containerStatuses": [again]}})
    problem = "may not be transitioned to non-terminated state"
    assert refused.causes == {forbidden("status.containerStatuses[0].state", problem)}


@pytest.mark.parametrize(
    "selector",
    [
        "spec.nodeName=n",
        "spec.nodeName!=",
        "status.phase=Running",
        "spec.restartPolicy=Never",
        "spec.schedulerName=mine",
        "spec.serviceAccountName=s",
        "spec.hostNetwork=true",
        "status.podIP=10.0.0.1",
        "status.nominatedNodeName=n",
        "metadata.name=b,spec.nodeName=n",
    ],
)
async def test_pods_are_selected_by_fields(api, pods, selector):
    await api.create(pods, pod())
    spec = {
        "nodeName": "n",
        "restartPolicy": "Never",
        "schedulerName": "mine",
        "serviceAccountName": "s",
        "hostNetwork": True,
    }
    if "nominated" in selector:
        del spec["nodeName"]
    await api.create(pods, pod("b", **spec))
    status = {"phase": "Running", "podIP": "10.0.0.1"}
    status |= {"nominatedNodeName": "n"} if "nominated" in selector else {}
    assert (await api.merge(f"{pods}/b/status", {"status": status})).status == 200
    found = await api.get(pods, fieldSelector=selector)
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]


async def test_another_field_selects_no_pods(api, pods):
    refused = await api.get(pods, fieldSelector="spec.containers=x")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "field label not supported: spec.containers"


async def test_a_pod_template_is_defaulted(api, ns):
    path = f"/api/v1/namespaces/{ns}/podtemplates"
    body = {
        "metadata": {"name": "a"},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": pod()["spec"]},
    }
    made = await api.create(path, body)
    assert made["template"] == stored_template()
    assert made.meta["generation"] == 1


async def test_a_pod_template_needs_containers(api, ns):
    refused = await api.create(f"/api/v1/namespaces/{ns}/podtemplates", {"metadata": {"name": "a"}})
    assert refused.causes == {required("template.spec.containers")}


async def test_containers_may_be_privileged(api, ns):
    container = {"name": "a", "image": "a", "securityContext": {"privileged": True}}
    made = await api.create(
        f"/api/v1/namespaces/{ns}/pods", {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
    )
    assert (made.status, made["spec"]["containers"][0]["securityContext"]) == (201, {"privileged": True})


@pytest.mark.parametrize("secrets", [[{}], [{"name": ""}], [{}, {"name": "a"}], [{}, {}]])
async def test_a_secret_without_a_name_is_one_with_an_empty_name(api, pods, secrets):
    made = await api.create(pods, pod(imagePullSecrets=secrets))
    assert made["spec"]["imagePullSecrets"] == [
        {key: name for key, name in one.items() if name} for one in secrets
    ]
    applied = {"apiVersion": "v1", "kind": "Pod", **pod("b", imagePullSecrets=secrets)}
    answer = await api.apply(f"{pods}/b", applied)
    assert answer.status == (500 if secrets == [{}, {}] else 201)
