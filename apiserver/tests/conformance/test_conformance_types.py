"""Go types of built-in kinds: the bodies that they accept, how they are written, and their unknown fields."""

from copy import deepcopy

import pytest

POD = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "env": [{"name": "A", "value": "1"}],
            "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1"}},
            "livenessProbe": {"httpGet": {"port": 80}},
        }
    ],
    "volumes": [{"name": "v", "emptyDir": {}}],
}


def deployment(name="a", **spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": deepcopy(POD)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec},
    }


def changed(body, path, value):
    """Returns the body with another value at this path."""
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split("/")]
    inner = body = deepcopy(body)
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return body


@pytest.fixture
def deployments(ns):
    return f"/apis/apps/v1/namespaces/{ns}/deployments"


@pytest.fixture
def core(ns):
    return f"/api/v1/namespaces/{ns}"


TEMPLATE = "spec/template/spec"
CONTAINER = f"{TEMPLATE}/containers/0"
IN = "spec.template.spec"


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("spec", [], "array into Go struct field Deployment.spec of type v1.DeploymentSpec"),
        ("spec/replicas", "1", "string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        ("spec/replicas", True, "bool into Go struct field DeploymentSpec.spec.replicas of type int32"),
        ("spec/replicas", 1.5, "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (
            "spec/replicas",
            3_000_000_000,
            "number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "spec/selector",
            "a=b",
            "string into Go struct field DeploymentSpec.spec.selector of type v1.LabelSelector",
        ),
        (
            "spec/selector/matchLabels/a",
            1,
            "number into Go struct field LabelSelector.spec.selector.matchLabels of type string",
        ),
        (
            "spec/strategy",
            {"type": 1},
            "number into Go struct field DeploymentStrategy.spec.strategy.type of type v1.DeploymentStrategyType",
        ),
        (f"{TEMPLATE}/containers", {}, f"object into Go struct field PodSpec.{IN}.containers of type []v1.Container"),
        (f"{TEMPLATE}/containers", ["c"], f"string into Go struct field PodSpec.{IN}.containers of type v1.Container"),
        (
            f"{TEMPLATE}/nodeSelector",
            [],
            f"array into Go struct field PodSpec.{IN}.nodeSelector of type map[string]string",
        ),
        (f"{CONTAINER}/image", 1, f"number into Go struct field Container.{IN}.containers.image of type string"),
        (f"{CONTAINER}/tty", "true", f"string into Go struct field Container.{IN}.containers.tty of type bool"),
        (f"{CONTAINER}/args", [1], f"number into Go struct field Container.{IN}.containers.args of type string"),
        (f"{CONTAINER}/args", "x", f"string into Go struct field Container.{IN}.containers.args of type []string"),
        (f"{CONTAINER}/env/0/name", 1, f"number into Go struct field EnvVar.{IN}.containers.env.name of type string"),
        (
            f"{CONTAINER}/ports/0/containerPort",
            "80",
            f"string into Go struct field ContainerPort.{IN}.containers.ports.containerPort of type int32",
        ),
        (
            f"{CONTAINER}/resources/limits",
            [],
            f"array into Go struct field ResourceRequirements.{IN}.containers.resources.limits of type v1.ResourceList",
        ),
        (
            f"{CONTAINER}/livenessProbe/httpGet/port",
            True,
            f"bool into Go struct field HTTPGetAction.{IN}.containers.livenessProbe.ProbeHandler.httpGet.port "
            "of type int32",
        ),
        (
            f"{TEMPLATE}/volumes/0/emptyDir",
            [],
            f"array into Go struct field Volume.{IN}.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource",
        ),
        (
            "spec/template/metadata/labels",
            "x",
            "string into Go struct field ObjectMeta.spec.template.metadata.labels of type map[string]string",
        ),
    ],
)  # fmt: skip
async def test_a_value_of_another_type_is_named_with_its_field_and_go_type(
    api, deployments, path, value, problem
):
    refused = await api.create(deployments, changed(deployment(), path, value))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        f'Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal {problem}'
    )


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (f"{CONTAINER}/resources/limits/cpu", "x", "quantities must match the regular expression"),
        (f"{CONTAINER}/resources/limits/cpu", True, "quantities must match the regular expression"),
        (f"{CONTAINER}/resources/limits/cpu", "1e", "unable to parse quantity's suffix"),
        (
            "spec/template/metadata/creationTimestamp",
            "yesterday",
            'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"',
        ),
        (
            "metadata/creationTimestamp",
            "2020-13-01T00:00:00Z",
            'parsing time "2020-13-01T00:00:00Z": month out of range',
        ),
    ],
)  # fmt: skip
async def test_a_text_of_another_form_is_refused_by_its_reader(api, deployments, path, value, problem):
    refused = await api.create(deployments, changed(deployment(), path, value))
    assert refused.refusal == (400, "BadRequest")
    assert problem in refused.message


UNKNOWN = {
    "spec.Replicas": 2,
    "spec.template.x": 1,
    "spec.template.metadata.x": 1,
    "spec.template.spec.x": {"y": 1},
    "spec.template.spec.containers[0].x": [],
    "spec.template.spec.containers[0].env[0].x": 1,
    "spec.template.spec.containers[0].livenessProbe.httpGet.x": 1,
    "spec.template.spec.volumes[0].emptyDir.x": 1,
}


def with_unknown():
    body = deployment()
    for path, value in UNKNOWN.items():
        body = changed(body, path.replace(".", "/").replace("[", "/").replace("]", ""), value)
    return body


async def test_unknown_fields_are_dropped_and_warned_of_however_deep(api, deployments):
    made = await api.create(deployments, with_unknown())
    assert made.status == 201
    assert made["spec"]["template"]["spec"]["containers"][0].get("x") is None
    # One header with all of them: not every client shows several headers of one name.
    assert made.warnings
    assert set(made.warnings) <= {f'unknown field "{path}"' for path in UNKNOWN}


async def test_strict_validation_refuses_unknown_fields(api, deployments):
    refused = await api.create(deployments, with_unknown(), fieldValidation="Strict")
    assert refused.refusal == (400, "BadRequest")
    start = 'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
    assert refused.message.startswith(start)
    named = refused.message.removeprefix(start).split(", ")
    assert set(named) == {f'unknown field "{path}"' for path in UNKNOWN}


async def test_ignored_validation_says_nothing_of_unknown_fields(api, deployments):
    made = await api.create(deployments, with_unknown(), fieldValidation="Ignore")
    assert (made.status, made.warnings) == (201, [])


async def test_a_patch_is_warned_of_unknown_fields_too(api, deployments):
    await api.create(deployments, deployment())
    body = {"spec": {"template": {"spec": {"nope": 1}}}}
    for patch in (api.merge, api.strategic):
        answer = await patch(f"{deployments}/a", body)
        assert (answer.status, answer.warnings) == (200, ['unknown field "spec.template.spec.nope"'])
        assert "nope" not in answer["spec"]["template"]["spec"]


async def test_an_apply_of_unknown_fields_is_refused(api, deployments):
    refused = await api.apply(f"{deployments}/a", with_unknown())
    assert refused.refusal == (500, None)
    assert "field not declared in schema" in refused.message


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("1000m", "1"),
        ("1000", "1k"),
        ("1.0", "1"),
        ("1000000", "1M"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("512.5Ki", "524800"),
        ("1024k", "1024k"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("1e1", "10"),
        ("1.5e3", "1500"),
        ("0Mi", "0"),
        ("  1", "1"),
        ("1000Ei", "9223372036854775807"),
        (1, "1"),
        (1000, "1k"),
        (None, "0"),
    ],
)
async def test_quantities_are_written_in_one_way(api, core, given, written):
    body = {"metadata": {"name": "a"}, "spec": {"hard": {"example.com/a": given}}}
    made = await api.create(f"{core}/resourcequotas", body)
    assert made["spec"] == {"hard": {"example.com/a": written}}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
        ("2020-01-02T03:04:05.6Z", "2020-01-02T03:04:05Z"),
        ("2020-01-02T03:04:05,6Z", "2020-01-02T03:04:05Z"),
        ("2020-01-02T03:04:05+02:00", "2020-01-02T01:04:05Z"),
        ("2020-01-02T3:04:05Z", "2020-01-02T03:04:05Z"),
        ("0001-01-01T00:00:00Z", None),
        (None, None),
    ],
)
async def test_times_are_written_in_utc_and_in_seconds(api, core, ns, given, written):
    body = {"metadata": {"name": "a"}, "involvedObject": {"namespace": ns}, "firstTimestamp": given}
    made = await api.create(f"{core}/events", body)
    assert made["firstTimestamp"] == written


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", 'cannot parse "" as "2006"'),
        ("2020-1-02T03:04:05Z", 'cannot parse "1-02T03:04:05Z" as "01"'),
        ("2020-01-02 03:04:05Z", 'cannot parse " 03:04:05Z" as "T"'),
        ("2020-01-02T03:04:05", 'cannot parse "" as "Z07:00"'),
        ("2020-01-02T03:04:05ZZ", 'extra text: "Z"'),
        ("2020-02-30T03:04:05Z", "day out of range"),
        ("2020-01-02T24:04:05Z", "hour out of range"),
        ("2020-01-02T03:60:05Z", "minute out of range"),
        ("2020-01-02T03:04:60Z", "second out of range"),
    ],
)
async def test_times_of_another_form_are_refused_in_the_words_of_go(api, core, ns, given, problem):
    body = {"metadata": {"name": "a"}, "involvedObject": {"namespace": ns}, "firstTimestamp": given}
    refused = await api.create(f"{core}/events", body)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.endswith(problem)


@pytest.mark.parametrize(
    ("path", "body", "written"),
    [
        ("/api/v1/namespaces/{ns}/resourcequotas", {}, {"spec": {}, "status": {}}),
        ("/api/v1/namespaces/{ns}/limitranges", {}, {"spec": {"limits": None}}),
        ("/api/v1/namespaces/{ns}/limitranges", {"spec": {"limits": []}}, {"spec": {"limits": None}}),
        ("/api/v1/namespaces/{ns}/endpoints", {"subsets": []}, {}),
        ("/api/v1/namespaces/{ns}/serviceaccounts", {"secrets": [], "automountServiceAccountToken": False},
         {"automountServiceAccountToken": False}),
        ("/api/v1/namespaces/{ns}/events", {"involvedObject": {"namespace": "{ns}"}},
         {"involvedObject": {"namespace": "{ns}"}, "source": {}, "firstTimestamp": None, "lastTimestamp": None,
          "eventTime": None, "reportingComponent": "", "reportingInstance": ""}),
        ("/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices", {"addressType": "IPv4"},
         {"addressType": "IPv4", "endpoints": None, "ports": None}),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", {"rules": []}, {"rules": None}),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
         {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": []}]},
         {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
        ("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", {"spec": {"holderIdentity": "", "leaseTransitions": 0}},
         {"spec": {"holderIdentity": "", "leaseTransitions": 0}}),
    ],
)  # fmt: skip
async def test_what_is_empty_is_written_as_its_type_says(api, ns, path, body, written):
    """Structs and fields without `omitempty` are always written; pointers keep zeros, and other fields do not."""

    def here(value):
        if isinstance(value, dict):
            return {key: here(inner) for key, inner in value.items()}
        return value.format(ns=ns) if isinstance(value, str) else value

    made = await api.create(path.format(ns=ns), {"metadata": {"name": "a"}, **here(body)})
    assert made.status == 201, made.text
    assert {name: made[name] for name in made.body.keys() - {"apiVersion", "kind", "metadata"}} == here(
        written
    )


async def test_nulls_are_taken_as_go_takes_them(api, deployments):
    body = deployment(replicas=None, strategy=None)
    body = changed(body, f"{TEMPLATE}/nodeSelector", {"a": None})
    body = changed(body, f"{CONTAINER}/args", [None, "x"])
    made = await api.create(deployments, body)
    assert made.status == 201, made.text
    spec = made["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"a": ""}
    assert spec["containers"][0]["args"] == ["", "x"]
    assert made["spec"]["replicas"] == 1


async def test_an_apply_of_a_typed_kind_owns_lists_by_their_keys(api, deployments):
    made = await api.apply(f"{deployments}/a", deployment())
    (entry,) = made.meta["managedFields"]
    owned = entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
    assert owned["f:volumes"] == {'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}}}
    container = owned["f:containers"]['k:{"name":"c"}']
    assert container["f:env"] == {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}}
    assert container["f:ports"] == {
        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
    }
