from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from kubeshard.core.objects import KubeObject, ObjectMeta, Struct, field
from kubeshard.webhook.review import (
    AdmissionAnswer,
    InvalidReview,
    UnexpectedObject,
    decode_review,
    encode_review,
    prepared,
)


def body(**changes: Any) -> dict[str, Any]:
    request = {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "g", "version": "v1", "resource": "things"},
        "namespace": "ns",
        "userInfo": {"username": "jane", "extra": {"claim": ["a", "b"]}},
        "object": {"apiVersion": "g/v1", "kind": "Thing", "metadata": {"name": "a", "labels": {"x": "y"}}},
        "oldObject": None,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, **changes}}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_metadata_operation_and_user_are_read_and_the_rest_is_skipped() -> None:
    review = body(object={"metadata": {"name": "a"}, "spec": {"x": [1, {"y": None}]}}, options={"z": 1})
    request = decode_review(encoded(review), "/p").request
    assert (request.path, request.uid, request.operation, request.namespace) == ("/p", "u-1", "CREATE", "ns")
    assert str(request.group_resource) == "things.g"
    assert request.user.username == "jane"
    assert request.user.claim("claim") == "a"
    assert request.user.claim("other") == ""
    assert request.object is not None
    assert request.object.metadata.name == "a"
    assert request.old_object is None
    assert request.object_error == ""


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Part(Struct):
    engine: Literal["pg", "sqlite"] = "pg"
    size: Size | None = None


class Whole(KubeObject, group="g", version="v1", kind="Thing"):
    part: Part | None = None
    parts: tuple[Annotated[Part, Meta(title="A part")], ...] = ()
    named: Mapping[str, Part] = field(default_factory=dict)


class Thing(KubeObject, group="g", version="v1"):
    spec: dict[str, int] = field(default_factory=dict)


def thing(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "g/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.regression
def test_the_whole_objects_are_there_for_whoever_asks_for_them() -> None:
    request = decode_review(encoded(body(object=thing(x=2), oldObject=thing(x=1)))).request
    now, before = request.whole(Thing), request.whole_old(Thing)
    assert now is not None
    assert before is not None
    assert (now.metadata.name, now.spec, before.spec) == ("a", {"x": 2}, {"x": 1})
    assert request.whole(dict) == thing(x=2)
    created = decode_review(encoded(body(object=thing(x=2)))).request
    assert created.whole_old(Thing) is None
    assert created.whole_old(dict) is None
    deleted = decode_review(encoded(body(operation="DELETE", object=None, oldObject=thing(x=1)))).request
    assert deleted.whole(Thing) is None
    assert deleted.whole_old(dict) == thing(x=1)


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (thing(x="many"), "does not fit Thing: Expected `int`"),
        ({**thing(), "kind": "Other"}, "a Other of g/v1"),
        ({**thing(), "apiVersion": "g/v2"}, "a Thing of g/v2"),
    ],
)
def test_an_object_that_is_not_what_it_was_asked_for_as_is_an_error(
    obj: dict[str, Any], problem: str
) -> None:
    request = decode_review(encoded(body(object=obj))).request
    with pytest.raises(UnexpectedObject, match=problem):
        request.whole(Thing)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("part", {"engine": "mysql"}, "pg, sqlite"),
        ("part", {"size": "m"}, "s, l"),
        ("parts", [{}, {"engine": "mysql"}], "pg, sqlite"),
        ("named", {"a": {"size": "m"}}, "s, l"),
    ],
)
def test_a_value_that_is_none_of_those_allowed_is_told_which_are(
    field: str, value: object, allowed: str
) -> None:
    request = decode_review(encoded(body(object={**thing(), field: value}))).request
    with pytest.raises(
        UnexpectedObject, match=rf"does not fit Whole: Invalid enum value .*; allowed: {allowed}$"
    ):
        request.whole(Whole)


def test_labels_that_are_null_are_no_labels() -> None:
    request = decode_review(encoded(body(object={"metadata": {"labels": None}}))).request
    assert request.object is not None
    assert request.object.metadata.labels is None


@pytest.mark.regression
def test_null_in_an_object_reads_as_the_default() -> None:
    null = {**thing(), "metadata": {"name": "a", "ownerReferences": None, "finalizers": None}, "spec": None}
    request = decode_review(encoded(body(object=null))).request
    assert request.object_error == ""
    assert request.object is not None
    assert request.object.metadata.owner_references == ()
    assert request.whole(Thing) == Thing(metadata=ObjectMeta(name="a"))


@pytest.mark.parametrize("part", ["object", "oldObject"])
@pytest.mark.parametrize(
    "value",
    [
        {"metadata": {"labels": ["a"]}},
        {"metadata": {"labels": "a"}},
        {"metadata": {"labels": {"a": 1}}},
        {"metadata": {"labels": {"a": None}}},
        {"metadata": {"generation": "many"}},
        {"metadata": {"ownerReferences": {"a": "b"}}},
        {"metadata": 7},
        {"kind": []},
        "object",
        17,
        [],
    ],
)
def test_unreadable_metadata_makes_an_object_error_and_no_invalid_review(part: str, value: Any) -> None:
    request = decode_review(encoded(body(**{part: value}))).request
    assert request.object_error
    assert request.uid == "u-1"
    assert request.object is None
    assert request.old_object is None


def test_the_wire_cannot_set_what_only_the_server_knows() -> None:
    request = decode_review(encoded(body(path="/x", objectError="x", object_error="x")), "/p").request
    assert request.path == "/p"
    assert request.object_error == ""


def nested(depth: int) -> bytes:
    return encoded(body())[:-2] + b',"deep":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}}"


def flat(levels: str, count: int) -> bytes:
    return encoded(body())[:-2] + f',"flat":[{",".join([levels] * count)}]}}}}'.encode()


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_huge_integers_harm_nothing(digits: int) -> None:
    data = encoded(body(object={"metadata": {"generation": 7}, "spec": 7})).replace(b"7", b"9" * digits)
    assert decode_review(data).request.uid == "u-1"


INVALID = {
    "empty": b"",
    "no JSON": b"hello",
    "cut off": encoded(body())[:-3],
    "trailing": encoded(body()) + b"x",
    "null": b"null",
    "list": b"[]",
    "NaN": b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"a","object":{"spec":NaN}}}',
    "no UTF-8": b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"a","object":{"spec":"\xff"}}}',
    "no request": encoded({"apiVersion": "admission.k8s.io/v1"}),
    "request null": encoded({"apiVersion": "admission.k8s.io/v1", "request": None}),
    "no uid": encoded({"apiVersion": "admission.k8s.io/v1", "request": {"operation": "CREATE"}}),
    "uid empty": encoded(body(uid="")),
    "uid no string": encoded(body(uid=1)),
    "resource no map": encoded(body(resource="things")),
    "no version": encoded({"request": {"uid": "a"}}),
    "other version": encoded({**body(), "apiVersion": "admission.k8s.io/v2"}),
    "deeper than 200": nested(201),
    "deeper than 200 in lists": encoded(body())[:-2] + b',"deep":' + b"[" * 201 + b"]" * 201 + b"}}",
    "very deep": nested(200_000),
    "very deep, open": b"[" * 1_000_000,
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID)
def test_what_is_no_review_is_an_invalid_review(data: bytes) -> None:
    with pytest.raises(InvalidReview) as caught:
        decode_review(data)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("data", [nested(150), flat('{"a":{"b":[]}}', 5000), flat('{"a":{}}', 5000)])
def test_wide_reviews_are_not_taken_for_deep_ones(data: bytes) -> None:
    assert decode_review(data).request.uid == "u-1"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_answer_is_in_kind_echoes_the_uid_and_says_allowed_in_so_many_words(version: str) -> None:
    review = decode_review(encoded({**body(uid='"\\ü'), "apiVersion": f"admission.k8s.io/{version}"}))
    assert json.loads(encode_review(review, AdmissionAnswer())) == {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": '"\\ü', "allowed": True, "status": {"code": 200}},
    }


def test_a_patch_is_base64_of_a_compact_json_array() -> None:
    answer = AdmissionAnswer(
        message="m", patch=({"op": "add", "path": "/a", "value": {}},), warnings=("careful",)
    )
    response = json.loads(encode_review(decode_review(encoded(body())), answer))["response"]
    assert base64.b64decode(response["patch"]) == b'[{"op":"add","path":"/a","value":{}}]'
    assert response["patchType"] == "JSONPatch"
    assert response["warnings"] == ["careful"]
    assert response["status"] == {"code": 200, "message": "m"}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    "answer",
    [
        AdmissionAnswer(),
        AdmissionAnswer(message='"uid":""', patch=({"op": "add", "path": "/a", "value": "ü"},)),
        AdmissionAnswer(allowed=False, code=403, message="no", warnings=("a", "b")),
    ],
)
def test_a_prepared_answer_reads_the_same(answer: AdmissionAnswer, version: str) -> None:
    review = decode_review(encoded({**body(uid='"\\ü'), "apiVersion": f"admission.k8s.io/{version}"}))
    assert encode_review(review, prepared(answer)) == encode_review(review, answer)


def test_a_denial_says_so() -> None:
    answer = AdmissionAnswer(allowed=False, code=400, message="no")
    response = json.loads(encode_review(decode_review(encoded(body())), answer))["response"]
    assert response == {"uid": "u-1", "allowed": False, "status": {"code": 400, "message": "no"}}
