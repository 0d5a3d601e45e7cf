"""Conversion between the versions of a custom resource by its webhook, for code that cannot wait for one.

Where an object is needed in another version, `ConversionWebhook.converted` raises `Unconverted`. Whoever may wait does
it within `converting`, which calls the webhook and then does the same again with the result at hand. Results are not
kept any longer: as on the real server, every request depends on the webhook.

Guaranteed: kind, name, namespace and uid of a converted object are those of the original, and of its metadata only
labels and annotations may differ. Source: k8s.io/apiextensions-apiserver `pkg/apiserver/conversion`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kubeshard.core.errors import ApiError
from kubeshard_apiserver.objects import Object, private
from kubeshard_apiserver.schema.name_formats import annotation_keys, labels
from kubeshard_apiserver.schema.validation import go_type, type_name
from kubeshard_apiserver.status import aggregated
from kubeshard_apiserver.steps import Steps, WebhookCall

T = TypeVar("T")
Sent = tuple[str, bytes]
"""An object as it is sent to a webhook, after the version that is asked for."""

_GROUP = "apiextensions.k8s.io"
_KIND = "ConversionReview"
_TIMEOUT = 30.0
_results: ContextVar[Mapping[Sent, Object]] = ContextVar("conversions", default={})  # noqa: B039 - never modified


@dataclass(frozen=True)
class ConversionWebhook:
    """`client` is a `clientConfig`; `review_version` is `v1` or `v1beta1`; `stored` is the API version in which objects
    are stored.
    """

    name: str
    client: Mapping[str, Any]
    review_version: str
    stored: str

    def converted(self, obj: Object, api_version: str) -> Object:
        """Returns a copy of the object in another version. Raises Unconverted."""
        if obj["apiVersion"] == api_version:
            return private(obj)
        found = _results.get().get(_sent(obj, api_version))
        if found is None:
            raise Unconverted(self, api_version, [obj])
        return private(found)


class Unconverted(Exception):
    """Raised where the webhook has to be called first. All `objects` are needed in the version."""

    def __init__(self, webhook: ConversionWebhook, api_version: str, objects: list[Object]) -> None:
        super().__init__(f"objects are needed in {api_version}")
        self.webhook = webhook
        self.api_version = api_version
        self.objects = objects


def converting(token: Callable[[], str], do: Callable[[], T]) -> Steps[T]:
    """Returns the result of `do`, which is called again after each conversion that it lacks, so it must have no effect
    before. `token` generates the uids of reviews. Raises ApiError (500) if the webhook cannot convert.
    """
    results: dict[Sent, Object] = {}
    while True:
        try:
            if not results:
                return do()
            with _knowing(results):
                return do()
        except Unconverted as missing:
            for obj, converted in (yield from _asked(missing, token())):
                results[_sent(obj, missing.api_version)] = converted


def each(objects: Iterable[Object], convert: Callable[[Object], Object]) -> list[Object]:
    """Converts the objects one by one. Raises one Unconverted for all of them."""
    converted: list[Object] = []
    missing: Unconverted | None = None
    for obj in objects:
        try:
            converted.append(convert(obj))
        except Unconverted as error:
            if missing is None:
                missing = error
            else:
                missing.objects += error.objects
    if missing is not None:
        raise missing
    return converted


def _sent(obj: Object, api_version: str) -> Sent:
    return api_version, msgspec.json.encode(obj)


@contextmanager
def _knowing(results: Mapping[Sent, Object]) -> Iterator[None]:
    before = _results.set(results)
    try:
        yield
    finally:
        _results.reset(before)


class Unconvertible(ApiError):
    """An object of this version was not converted, because its webhook did not answer as it has to."""

    def __init__(self, api_version: str, message: str) -> None:
        super().__init__(message, code=500)
        self.api_version = api_version


class _Refused(Exception):
    """A response that cannot be used; the message follows the name of the kind."""


def _asked(missing: Unconverted, uid: str) -> Steps[list[tuple[Object, Object]]]:
    webhook, objects = missing.webhook, missing.objects
    review = {
        "kind": _KIND,
        "apiVersion": f"{_GROUP}/{webhook.review_version}",
        "request": {"uid": uid, "desiredAPIVersion": missing.api_version, "objects": objects},
        "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
    }
    version, kind = objects[0]["apiVersion"], objects[0]["kind"]
    reply = yield WebhookCall(webhook.name, webhook.client, review, _TIMEOUT)
    try:
        if reply.problem:
            raise _Refused(f"failed: {reply.problem}")
        converted = _objects(reply.review, uid, strict=webhook.review_version == "v1")
        if len(converted) != len(objects):
            raise _Refused(f"returned {len(converted)} objects, expected {len(objects)}")
        for index, (old, new) in enumerate(zip(objects, converted, strict=True)):
            _check(old, new, missing.api_version, index)
        return [(old, _restored(old, new)) for old, new in zip(objects, converted, strict=True)]
    except _Refused as error:
        raise Unconvertible(version, f"conversion webhook for {version}, Kind={kind} {error}") from None


def _objects(review: Any, uid: str, *, strict: bool) -> list[Any]:
    """Returns the converted objects. `strict` is what the webhook is held to by version v1 of the review."""
    if not isinstance(review, Mapping):
        given = type_name(review)
        raise _Refused(
            f"failed: couldn't get version/kind; json parse error: json: cannot unmarshal {given} into Go value of "
            'type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            '"json:\\"kind,omitempty\\"" }'
        )
    version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    if version and (kind != _KIND or version not in (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")):
        told = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        raise _Refused(f"failed: {told}")
    if strict and version != f"{_GROUP}/v1":
        given = f"{version}, Kind={kind}" if version else f"/, Kind={kind}"
        raise _Refused(f"failed: expected webhook response of {_GROUP}/v1, Kind={_KIND}, got {given}")
    response = review.get("response")
    if not isinstance(response, Mapping):
        raise _Refused("failed: no response provided")
    if strict and (given := response.get("uid") or "") != uid:
        raise _Refused(f'failed: expected response.uid="{uid}", got "{given}"')
    result = response.get("result") or {}
    if (status := result.get("status") or "") != "Success":
        told = result.get("message") or f"response.result.status was '{status}', not 'Success'"
        raise _Refused(f"failed: {told}")
    return response.get("convertedObjects") or []


def _check(old: Object, new: Any, api_version: str, index: int) -> None:
    new = new if isinstance(new, Mapping) else {}
    begin = f"returned invalid object at index {index}: invalid"
    if (version := new.get("apiVersion") or "/") != api_version:
        raise _Refused(f"{begin} groupVersion (expected {api_version}, received {version})")
    if (kind := new.get("kind") or "") != old["kind"]:
        raise _Refused(f"{begin} kind (expected {old['kind']}, received {kind})")
    after = new.get("metadata") if isinstance(new.get("metadata"), Mapping) else {}
    for field, called in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        before, given = old["metadata"].get(field) or "", after.get(field) or ""
        if before != given:
            raise _Refused(f"returned invalid object: must have the same {called}: {before} != {given}")


def _restored(old: Object, new: Object) -> Object:
    """Returns the converted object with the metadata of the original, except for labels and annotations."""
    metadata = dict(old["metadata"])
    # The server names the place of annotations in the singular.
    for field, place, errors in (
        ("labels", "labels", labels),
        ("annotations", "annotation", annotation_keys),
    ):
        given = new["metadata"].get(field)
        if given is None or given == {}:
            metadata.pop(field, None)
            continue
        begin = "returned invalid metadata: "
        if not isinstance(given, Mapping):
            raise _Refused(f"{begin}invalid metadata.{field} of type {go_type(given)} in converted object")
        for key, text in given.items():
            if not isinstance(text, str):
                told = f"must be a string, but is {go_type(text)} in converted object"
                raise _Refused(f"{begin}metadata.{field}[{key}] {told}")
        if given != metadata.get(field) and (wrong := errors(f"metadata.{place}", given)):
            raise _Refused(begin + aggregated(wrong))
        metadata[field] = given
    return {**new, "metadata": metadata}
