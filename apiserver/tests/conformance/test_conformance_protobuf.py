"""Protobuf in the envelope of Kubernetes: bodies as Go's typed clients send them, and responses."""

import pytest
from conformance_kinds import site

from kubeshard_apiserver.schema.protobuf import decode, open_envelope

pytestmark = pytest.mark.wire

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"


def field(number: int, value: bytes | int) -> bytes:
    """Encodes one field of a message; short fields only."""
    if isinstance(value, int):
        return bytes((number << 3, value))
    return bytes((number << 3 | 2, len(value))) + value


def sent(api_version: bytes, kind: bytes, message: bytes) -> bytes:
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, message)


META = field(1, b"a") + field(3, b"") + field(8, b"") + field(11, field(1, b"l") + field(2, b"x"))
CONFIG_MAP = sent(b"v1", b"ConfigMap", field(1, META) + field(2, field(1, b"k") + field(2, b"v")))


async def test_an_object_is_created(api, maps):
    made = await api.call("POST", maps, CONFIG_MAP, content_type=PROTOBUF)
    assert made.status == 201, made.text
    assert made["data"] == {"k": "v"}
    assert made.meta["labels"] == {"l": "x"}
    assert made.meta["managedFields"][0]["fieldsV1"] == {
        "f:data": {".": {}, "f:k": {}},
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
    }


async def test_bytes_are_base64(api, ns):
    body = sent(b"v1", b"Secret", field(1, field(1, b"a")) + field(2, field(1, b"k") + field(2, b"\0\xff")))
    made = await api.call("POST", f"/api/v1/namespaces/{ns}/secrets", body, content_type=PROTOBUF)
    assert made["data"] == {"k": "AP8="}


async def test_times_and_numbers_of_a_lease(api, leases):
    time = field(1, 60) + field(2, 0)
    spec = field(1, b"me") + field(2, 15) + field(3, time)
    body = sent(b"coordination.k8s.io/v1", b"Lease", field(1, field(1, b"a")) + field(2, spec))
    made = await api.call("POST", leases, body, content_type=PROTOBUF)
    assert made["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "1970-01-01T00:01:00.000000Z",
    }


async def test_a_delete_has_its_options(api, maps):
    made = await api.call("POST", maps, CONFIG_MAP, content_type=PROTOBUF)
    options = sent(b"v1", b"DeleteOptions", field(2, field(1, b"another-uid")))
    refused = await api.call("DELETE", f"{maps}/a", options, content_type=PROTOBUF)
    assert refused.refusal == (409, "Conflict")
    same = sent(b"v1", b"DeleteOptions", field(2, field(1, made.meta["uid"].encode())))
    assert (await api.call("DELETE", f"{maps}/a", same, content_type=PROTOBUF)).status == 200


async def test_another_kind_is_refused(api, ns):
    refused = await api.call("POST", f"/api/v1/namespaces/{ns}/secrets", CONFIG_MAP, content_type=PROTOBUF)
    assert refused.refusal == (400, "BadRequest")
    assert "ConfigMap" in refused.message


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            b"garbage",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (67617262616765)",
        ),
        (MAGIC, "empty body (6b387300)"),
        (MAGIC + b"\x67", "proto: illegal wireType 7 (6b38730067)"),
        (MAGIC + b"\x0a\x7f", "unexpected EOF (6b3873000a7f)"),
    ],
)
async def test_what_is_no_message_is_refused(api, maps, body, problem):
    refused = await api.call("POST", maps, body, content_type=PROTOBUF)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == f"the object provided is unrecognized (must be of type ConfigMap): {problem}"


UNRECOGNIZED = "the object provided is unrecognized (must be of type ConfigMap): "
NAMES = field(1, field(1, b"v1") + field(2, b"ConfigMap"))


@pytest.mark.regression
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"\x08\x00", "proto: wrong wireType = 0 for field TypeMeta"),
        (b"\x10\x00", "proto: wrong wireType = 0 for field Raw"),
        (b"\x0a\x02\x08\x00", "proto: wrong wireType = 0 for field APIVersion"),
        (NAMES + b"\x18\x07", "proto: wrong wireType = 0 for field ContentEncoding"),
        (b"\x0b", "proto: wrong wireType = 3 for field TypeMeta"),
        (b"\x0c", "proto: Unknown: wiretype end group for non-group"),
        (b"\0\0", "proto: Unknown: illegal tag 0 (wire type 0)"),
        (NAMES + b"\x0d\0\0\0\0", "proto: wrong wireType = 5 for field TypeMeta"),
    ],
)
async def test_a_malformed_envelope_is_refused(api, maps, body, problem):
    refused = await api.call("POST", maps, MAGIC + body, content_type=PROTOBUF)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == f"{UNRECOGNIZED}{problem} ({(MAGIC + body).hex()})"


@pytest.mark.regression
@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"\x08\x00", "proto: wrong wireType = 0 for field ObjectMeta"),
        (field(1, b"\x08\x00"), "proto: wrong wireType = 0 for field Name"),
        (field(1, field(7, b"x")), "proto: wrong wireType = 2 for field Generation"),
        (field(1, field(8, b"\x0a\x00")), "proto: wrong wireType = 2 for field Seconds"),
        (b"\x0a\x05a", "unexpected EOF"),
        (b"\x7f", "proto: illegal wireType 7"),
        (b"\x06", "proto: ConfigMap: illegal tag 0 (wire type 6)"),
        (b"\x0b\x0c", "proto: wrong wireType = 3 for field ObjectMeta"),
        (b"\x0a" + b"\xff" * 10, "proto: integer overflow"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "proto: negative length found during unmarshaling"),
    ],
)
async def test_a_malformed_object_is_refused(api, maps, message, problem):
    body = sent(b"v1", b"ConfigMap", message)
    refused = await api.call("POST", maps, body, content_type=PROTOBUF)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {problem}'


async def test_a_kind_that_nobody_knows_is_refused(api, maps):
    refused = await api.call("POST", maps, sent(b"v9", b"X", b""), content_type=PROTOBUF)
    assert refused.refusal == (400, "BadRequest")
    problem = 'no kind "X" is registered for version "v9" in scheme "pkg/runtime/scheme.go:111"'
    assert refused.message == f'X in version "v9" cannot be handled as a ConfigMap: {problem}'


@pytest.mark.parametrize(
    "names", [b"", field(1, b""), field(1, field(1, b"v1")), field(1, field(2, b"ConfigMap"))]
)
async def test_what_does_not_name_its_kind_is_of_the_paths(api, maps, names):
    made = await api.call("POST", maps, MAGIC + names + field(2, field(1, META)), content_type=PROTOBUF)
    assert made.status == 201, made.text
    assert made["kind"] == "ConfigMap"


# Responses


POD = {
    "metadata": {"name": "a", "labels": {"l": "x"}, "finalizers": ["example.com/f"]},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "env": [{"name": "E", "value": ""}],
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5},
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "securityContext": {"privileged": False, "capabilities": {"add": ["SYS_TIME"]}},
            }
        ],
        "volumes": [{"name": "v", "configMap": {"name": "m", "optional": True}}],
        "nodeSelector": {"disk": ""},
    },
}
OBJECTS = [
    (
        "/api/v1/namespaces/{}/configmaps",
        {"metadata": {"name": "a"}, "data": {"k": "é"}, "binaryData": {"b": "AP8="}},
    ),
    ("/api/v1/namespaces/{}/secrets", {"metadata": {"name": "a"}, "immutable": False, "data": {"k": "AP8="}}),
    ("/api/v1/namespaces/{}/pods", POD),
    (
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        {
            "metadata": {"name": "a"},
            "spec": {"renewTime": "2026-01-02T03:04:05.678901Z", "leaseDurationSeconds": 9},
        },
    ),
    (
        "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
        {
            "metadata": {"name": "a"},
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": "http"}, {"port": 1}]}]},
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), OBJECTS, ids=[path.rpartition("/")[2] for path, _ in OBJECTS])
async def test_who_accepts_nothing_else_gets_the_same_object_in_protobuf(api, ns, path, body):
    path = path.format(ns)
    made = await api.call("POST", path, body, accept=PROTOBUF)
    assert (made.status, made.headers["content-type"]) == (201, PROTOBUF), made.text
    read = await api.call("GET", f"{path}/a", accept=PROTOBUF)
    same = await api.get(f"{path}/a")
    assert decode(made.raw) == decode(read.raw) == same.body
    listed = open_envelope((await api.call("GET", path, accept=PROTOBUF)).raw)
    assert (listed.api_version, listed.kind) == (same["apiVersion"], f"{same['kind']}List")
    assert field(5, same.meta["uid"].encode()) in listed.raw


async def test_a_watch_in_protobuf_has_events_after_their_lengths(api, maps):
    start = (await api.get(maps)).version
    await api.create(maps, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    query = {"watch": True, "resourceVersion": start, "timeoutSeconds": 1}
    answer = await api.call("GET", maps, accept=PROTOBUF, **query)
    assert (answer.status, answer.headers["content-type"]) == (200, f"{PROTOBUF};stream=watch")
    assert int.from_bytes(answer.raw[:4]) == len(answer.raw) - 4
    assert answer.raw[4:].startswith(field(1, b"ADDED"))
    assert decode(answer.raw[answer.raw.index(MAGIC) :]) == (await api.get(f"{maps}/a")).body


async def test_refusals_have_the_type_that_was_asked_for(api, maps):
    refused = await api.call("GET", f"{maps}/a", accept=PROTOBUF)
    assert (refused.status, refused.headers["content-type"]) == (404, PROTOBUF)
    status = open_envelope(refused.raw)
    assert (status.api_version, status.kind) == ("v1", "Status")
    assert field(3, b'configmaps "a" not found') + field(4, b"NotFound") in status.raw
    refused = await api.call("GET", f"{maps}/a", accept="application/yaml")
    assert (refused.status, refused.headers["content-type"]) == (404, "application/yaml")
    assert 'message: configmaps "a" not found' in refused.text


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/api/v1", "APIResourceList"),
    ],
)
async def test_discovery_is_spoken_in_protobuf(api, path, kind):
    answer = await api.call("GET", path, accept=PROTOBUF)
    assert (answer.status, answer.headers["content-type"]) == (200, PROTOBUF)
    assert open_envelope(answer.raw).kind == kind


async def test_metadata_is_spoken_in_protobuf_for_all_kinds(api, sites):
    await api.create(sites, site())
    partial = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    answer = await api.call("GET", f"{sites}/a", accept=PROTOBUF + partial)
    assert (answer.status, open_envelope(answer.raw).kind) == (200, "PartialObjectMetadata")


async def test_custom_resources_have_no_protobuf(api, sites):
    for path in (sites, f"{sites}/a"):
        refused = await api.call("GET", path, accept=PROTOBUF)
        assert refused.status == 406
        accepted = b"application/json, application/yaml, application/vnd.kubernetes.protobuf"
        assert b"only the following media types are accepted: " + accepted in refused.raw


async def test_a_watch_has_no_yaml(api, maps):
    refused = await api.call("GET", maps, accept="application/yaml", watch=True, timeoutSeconds=1)
    assert refused.status == 406
