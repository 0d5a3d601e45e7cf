"""Bodies as Go's typed clients send them: protobuf in the envelope of Kubernetes."""

import pytest

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"


def field(number: int, value: bytes | int) -> bytes:
    """One field of a message; short ones only."""
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
