"""Whatever is sent to the front, it responds as an API server would: with a Status, never with a crash."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver import ApiServer, Front

SITES = "/apis/fuzz.example.com/v1/namespaces/default/sites"
PATHS = [
    "/api/v1/namespaces", "/api/v1/namespaces/default", "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a", "/api/v1/namespaces/default/secrets/a", "/api/v1/configmaps",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis", SITES, f"{SITES}/a", f"{SITES}/a/status",
    "/apis/apps/v1/namespaces/default/deployments",
]  # fmt: skip
QUERIES = [
    "", "?dryRun=All", "?limit=x", "?continue=e30", "?resourceVersion=x", "?labelSelector=((", "?fieldSelector==,=",
    "?fieldManager=a", "?fieldManager=a&force=true", "?fieldValidation=Strict", "?fieldValidation=X", "?watch=1&%zz",
]  # fmt: skip
TYPES = [
    "application/json", "application/yaml", "application/merge-patch+json", "application/json-patch+json",
    "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf", "text/plain", "",
]  # fmt: skip
DEFINITION = {
    "metadata": {"name": "sites.fuzz.example.com"},
    "spec": {
        "group": "fuzz.example.com",
        "scope": "Namespaced",
        "names": {"plural": "sites", "kind": "Site"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "data": {
                                "type": "array",
                                "x-kubernetes-list-type": "set",
                                "items": {"type": "string"},
                            },
                        },
                    }
                },
            }
        ],
    },
}

METADATA = [
    "labels",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "resourceVersion",
    "generateName",
    "uid",
]
FIELDS = ["spec", "data", "status", "kind", "apiVersion", "dryRun", "preconditions"]
KEYS = [
    "group",
    "names",
    "versions",
    "scope",
    "name",
    "op",
    "path",
    "value",
    "from",
    "schema",
    "f:x",
    "plural",
    "storage",
]
POINTERS = [
    "/data/a",
    "/metadata",
    "/metadata/labels",
    "",
    "/spec/0",
    "/data/-",
    "x",
    "/metadata/managedFields/0",
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["", "a", "v1", "Site", "é", "fuzz.example.com/v1"])
)
keys = st.sampled_from([*METADATA, *FIELDS, *KEYS])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)
objects = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": st.just("a")}, optional=dict.fromkeys(METADATA, values))},
    optional={
        **dict.fromkeys(FIELDS, values),
        "apiVersion": st.just("fuzz.example.com/v1"),
        "kind": st.just("Site"),
    },
)
operations = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"])},
    optional={"path": st.sampled_from(POINTERS), "from": st.sampled_from(POINTERS), "value": values},
)
documents = values | objects | st.lists(operations, max_size=3)
MESSAGES = [
    b"", b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap", b"\x0a\x0c\x0a\x02v1\x12\x06Secret",
    b"\x0a\x1f\x0a\x16coordination.k8s.io/v1\x12\x05Lease",
]  # fmt: skip
messages = st.tuples(st.sampled_from(MESSAGES), st.binary(max_size=40)).map(
    lambda parts: b"k8s\0" + b"".join(parts)
)
bodies = documents.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20) | messages


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "BREW"]),
            st.sampled_from(PATHS),
            st.sampled_from(QUERIES),
            st.sampled_from(TYPES),
            bodies,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_request_is_answered_by_falling_over(requests):
    asyncio.run(_none_falls_over(requests))


async def _none_falls_over(requests):
    front = Front(ApiServer())
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await front.reply(HttpRequest("POST", definitions, {}, json.dumps(DEFINITION).encode()))
    for name in ("configmaps", "secrets"):
        await front.reply(
            HttpRequest("POST", f"/api/v1/namespaces/default/{name}", {}, b'{"metadata": {"name": "a"}}')
        )
    for method, path, query, content_type, body in requests:
        reply = await front.reply(HttpRequest(method, path + query, {"content-type": content_type}, body))
        if reply.status >= 400 and reply.headers["content-type"] == "application/json":
            status = json.loads(reply.body)
            assert (status["kind"], status["code"]) == ("Status", reply.status)
            assert status.get("reason") != "InternalError", (method, path, content_type, body)


@pytest.mark.regression
@given(
    st.sampled_from(["POST", "PUT", "DELETE"]),
    st.sampled_from(["configmaps", "configmaps/a", "secrets", "pods"]),
    messages,
)
def test_a_body_in_protobuf_is_an_object_or_refused(method, path, body):
    front = _FRONT
    headers = {"content-type": "application/vnd.kubernetes.protobuf"}
    request = HttpRequest(method, f"/api/v1/namespaces/default/{path}", headers, body)
    reply = asyncio.run(front.reply(request))
    assert reply.status != 500, reply.body


_FRONT = Front(ApiServer())


@pytest.mark.regression
@pytest.mark.parametrize(
    "raised", [TypeError("of ours"), AssertionError(), UnicodeDecodeError("utf-8", b"", 0, 1, "")]
)
def test_a_mistake_of_the_server_is_a_500_with_its_traceback_in_the_log(raised, caplog):
    class Broken:
        def enter(self, *_):
            raise raised

    reply = asyncio.run(Front(ApiServer(), gate=Broken()).reply(HttpRequest("GET", "/api/v1/pods", {})))
    assert reply.status == 500
    status = json.loads(reply.body)
    assert (status["kind"], status["code"]) == ("Status", 500)
    assert type(raised).__name__ in status["message"]
    assert [(record.msg, record.exc_info[1]) for record in caplog.records] == [
        ("Failed to answer a request", raised)
    ]


@pytest.mark.regression
@pytest.mark.parametrize("target", ["//[", "*", "http://[x/api", "", "/%ff", "/api/v1/pods?limit=%ff"])
def test_a_target_that_is_no_path_is_a_mistake_of_the_client(target):
    reply = asyncio.run(Front(ApiServer()).reply(HttpRequest("GET", target, {})))
    assert 200 <= reply.status < 500
