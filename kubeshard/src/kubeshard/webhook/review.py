"""AdmissionReviews on the wire: decodes bytes to `AdmissionRequest` and encodes `AdmissionAnswer` to bytes.

Guaranteed: only the metadata of the objects under review is decoded, in one pass over the body; the rest is skipped,
whatever its size, until a handler needs it (`whole`, `whole_old`). An object with invalid metadata (for example labels
that are not a map of strings) does not make the review invalid: the request reports it in `object_error`, so that a
handler can let it through. A body that is not an AdmissionReview raises `InvalidReview`, never anything else. The
answer has the request's apiVersion and uid.

Not guaranteed: that duplicate keys are found (the last one wins, as in the API server's own decoder), and that the
nesting depth is exact if strings contain brackets; the parser has its own recursion limit.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from kubeshard.core.encoding import read
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import PartialObject, Struct

T = TypeVar("T")

MAX_DEPTH = 200
"""The maximum nesting depth of a body. The API server's own objects have a tenth of that."""

API_VERSIONS = frozenset({"admission.k8s.io/v1", "admission.k8s.io/v1beta1"})
"""Both versions have the same shape; an answer has the version of its request."""


class InvalidReview(ValueError):
    """The body is no AdmissionReview. The message is one line, with nothing from the body but names of fields."""


class UnexpectedObject(ValueError):
    """The object under review has another kind than the requested class, or does not fit it."""


class GroupVersionResource(Struct):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Struct):
    """`request.userInfo`: the user of the request. `extra` contains, among others, the claims of a bound
    token."""

    username: str = ""
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None

    def claim(self, name: str) -> str:
        """The only value of an `extra` entry, or `""` if it is absent."""
        values = self.extra.get(name) if self.extra else None
        return values[0] if values else ""


class OperationOptions(Struct):
    """`request.options`. The API server reports a patch like any other update."""

    field_manager: str = ""


class ReviewedObject(PartialObject):
    """The metadata of an object under review, and its kind as the API server reports it."""

    api_version: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, gc=False):
    """An admission request, with the objects' metadata.

    `object` is None for DELETE and CONNECT, `old_object` for CREATE and CONNECT, and both if their metadata could not
    be read; `object_error` says why. `path` is the URL path of the call. In a dry run (`dry_run`) nothing will be
    stored: a handler must answer as usual, without side effects.

    `field_manager` is what the client stated (`fieldManager`), `""` if it stated nothing.

    `body` is the received review, which `whole` and `whole_old` decode.
    """

    path: str
    uid: str
    operation: str
    resource: GroupVersionResource
    sub_resource: str
    namespace: str
    name: str
    dry_run: bool
    user: UserInfo
    field_manager: str = ""
    object: ReviewedObject | None = None
    old_object: ReviewedObject | None = None
    object_error: str = ""
    body: bytes | bytearray = b""

    def whole(self, type: type[T]) -> T | None:
        """The object under review with everything that `type` declares: a KubeObject, or `dict` for plain JSON. None if
        there is no object (DELETE).

        Decodes the review again in each call. Raises UnexpectedObject.
        """
        return _whole(_RAW_REVIEW.decode(self.body).request.object, type)

    def whole_old(self, type: type[T]) -> T | None:
        """Like `whole`, but the object before the UPDATE or DELETE; None for CREATE."""
        return _whole(_RAW_REVIEW.decode(self.body).request.old_object, type)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.resource.group, self.resource.resource)


class AdmissionAnswer(Struct):
    """A handler's decision. `message` and `code` go into the response's status; `patch` is a sequence of JSON Patch
    operations on the object; kubectl and other clients show `warnings` to the user.
    """

    allowed: bool = True
    message: str = ""
    code: int = 200
    patch: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


class PreparedAnswer(AdmissionAnswer):
    """An answer that is used often (`prepared`): encoded once, except for version and uid."""

    wire: bytes = b""


def prepared(answer: AdmissionAnswer) -> PreparedAnswer:
    """`answer`, encoded for repeated use."""
    allowed, message, code, patch, warnings = msgspec.structs.astuple(answer)
    whole = _ENCODER.encode(_ReviewAnswer("", _response("", answer)))
    wire = whole.partition(b'"uid":""')[2]
    return PreparedAnswer(
        allowed=allowed, message=message, code=code, patch=patch, warnings=warnings, wire=wire
    )


AdmissionHandler = Callable[[AdmissionRequest], AdmissionAnswer | Awaitable[AdmissionAnswer]]
"""A function or an `async` function that decides about a request. The user's request waits meanwhile: a plain function
must not block, and an `async` one is cancelled when the API server no longer waits. For what happens if it raises see
`Webhook`.
"""


class Review(msgspec.Struct, frozen=True, gc=False):
    """A decoded review: the request, and the version of the answer."""

    api_version: str
    request: AdmissionRequest


def decode_review(body: bytes | bytearray, path: str = "") -> Review:
    """Decodes a review. Raises InvalidReview."""
    try:
        if _nested_too_deeply(body):
            raise InvalidReview(f"the review is nested deeper than {MAX_DEPTH} levels")
        review = _decode(body, path)
    except UnicodeDecodeError:
        raise InvalidReview("the review is not UTF-8") from None
    except RecursionError:
        raise InvalidReview("the review is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise InvalidReview(f"not an AdmissionReview: {error}") from None
    except msgspec.DecodeError as error:
        raise InvalidReview(f"not valid JSON: {error}") from None
    if review.api_version not in API_VERSIONS:
        raise InvalidReview("not an AdmissionReview of admission.k8s.io/v1 or v1beta1")
    if not review.request.uid:
        raise InvalidReview("the review's request has no uid")
    return review


def encode_review(review: Review, answer: AdmissionAnswer) -> bytes:
    if isinstance(answer, PreparedAnswer):
        version = review.api_version.encode()  # one of two
        uid = _ENCODER.encode(review.request.uid)
        return b'{"apiVersion":"%b","response":{"uid":%b%b' % (version, uid, answer.wire)
    return _ENCODER.encode(_ReviewAnswer(review.api_version, _response(review.request.uid, answer)))


def _response(uid: str, answer: AdmissionAnswer) -> _Response:
    response = _Response(uid, answer.allowed, _Status(answer.code, answer.message or msgspec.UNSET))
    if answer.patch:
        response.patch = b64encode(_ENCODER.encode(answer.patch)).decode()
        response.patchType = "JSONPatch"
    if answer.warnings:
        response.warnings = answer.warnings
    return response


class _Request(Struct):
    uid: str
    operation: str = ""
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool | None = None
    user_info: UserInfo = UserInfo()
    options: OperationOptions | None = None


class _RequestWithObjects(_Request):
    object: ReviewedObject | None = None
    old_object: ReviewedObject | None = None


class _RequestWithRawObjects(_Request):
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(Struct):
    api_version: str
    request: _RequestWithObjects


class _RawReview(Struct):
    api_version: str
    request: _RequestWithRawObjects


# Not `Struct`: the API server reads an absent `allowed` as false, so no field may be omitted because it has its
# default.
class _Status(msgspec.Struct, gc=False):
    code: int
    message: str | msgspec.UnsetType


class _Response(msgspec.Struct, gc=False):
    uid: str
    allowed: bool
    status: _Status
    patch: str | msgspec.UnsetType = msgspec.UNSET
    patchType: str | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 - the wire's name
    warnings: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class _ReviewAnswer(msgspec.Struct, gc=False, rename={"api_version": "apiVersion"}):
    api_version: str
    response: _Response
    kind: str = "AdmissionReview"


_REVIEW = msgspec.json.Decoder(_Review)
_RAW_REVIEW = msgspec.json.Decoder(_RawReview)
_OBJECT = ReviewedObject | None
_ENCODER = msgspec.json.Encoder()

_NOT_IN_ENUM = re.compile(r"^Invalid enum value .* - at `\$\.(.*)`$", re.S)
_FIELD_OR_ITEM = re.compile(r"[^.\[\]]+|\[[^\]]*\]")

_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _nested_too_deeply(body: bytes | bytearray) -> bool:
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    brackets = body.translate(None, _NO_BRACKETS)
    # Most brackets of a Kubernetes object are the empty maps of managedFields and the maps around those.
    few = brackets.replace(b"{}", b"").replace(b"{}", b"")
    return _depth(few) > MAX_DEPTH - 2 and _depth(brackets) > MAX_DEPTH


def _depth(brackets: bytes | bytearray) -> int:
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _decode(body: bytes | bytearray, path: str) -> Review:
    text = body.decode()
    try:
        review = _REVIEW.decode(text)
        request = review.request
        return Review(
            review.api_version, _request(path, body, request, request.object, request.old_object, "")
        )
    except msgspec.ValidationError:
        # A field has the wrong type. Outside the objects, that makes the review invalid; inside, it does not.
        raw = _RAW_REVIEW.decode(text)
    try:
        now, before = (read(_OBJECT, part) for part in (raw.request.object, raw.request.old_object))
        return Review(raw.api_version, _request(path, body, raw.request, now, before, ""))
    except msgspec.DecodeError as error:
        return Review(raw.api_version, _request(path, body, raw.request, None, None, str(error)))


def _whole(raw: msgspec.Raw, target: type[T]) -> T | None:
    if bytes(raw) == b"null":
        return None
    type_: Any = target
    kind: Kind | None = getattr(type_, "KIND", None)
    try:
        if kind is not None:
            found: ReviewedObject = read(ReviewedObject, raw)
            if (found.api_version, found.kind) != (kind.api_version, kind.kind):
                raise UnexpectedObject(
                    f"the object is a {found.kind} of {found.api_version}, {type_.__name__} is {kind}"
                )
        decoded: T = read(type_, raw)
    except msgspec.DecodeError as error:
        allowed = ", ".join(_allowed(type_, str(error)))
        more = f"; allowed: {allowed}" if allowed else ""
        raise UnexpectedObject(f"the object does not fit {type_.__name__}: {error}{more}") from error
    return decoded


def _allowed(target: type[Any], message: str) -> list[str]:
    """The values that a field may have, if that is what the decoder's message is about. It only says where: the API
    server, which would name them, validates the object after the webhooks that change it.
    """
    if (found := _NOT_IN_ENUM.search(message)) is None:
        return []
    options: list[inspect.Type] = [inspect.type_info(target)]
    for step in _FIELD_OR_ITEM.findall(found[1]):
        options = [part for each in options for part in _parts(_inside(each, step))]
    values: list[Any] = []
    for each in options:
        if isinstance(each, inspect.LiteralType):
            values += each.values
        elif isinstance(each, inspect.EnumType):
            values += [member.value for member in each.cls]
    return [str(value) for value in values]


def _inside(type_: inspect.Type, step: str) -> inspect.Type | None:
    """The type of a field, or of what a list or map contains."""
    if isinstance(type_, inspect.StructType):
        return next((field.type for field in type_.fields if field.encode_name == step), None)
    if isinstance(type_, inspect.DictType):
        return type_.value_type
    return type_.item_type if isinstance(type_, inspect.CollectionType) else None


def _parts(type_: inspect.Type | None) -> tuple[inspect.Type, ...]:
    while isinstance(type_, inspect.Metadata):
        type_ = type_.type
    if isinstance(type_, inspect.UnionType):
        return type_.types
    return () if type_ is None else (type_,)


def _request(
    path: str,
    body: bytes | bytearray,
    request: _Request,
    now: ReviewedObject | None,
    before: ReviewedObject | None,
    error: str,
) -> AdmissionRequest:
    return AdmissionRequest(
        path,
        request.uid,
        request.operation,
        request.resource,
        request.sub_resource,
        request.namespace,
        request.name,
        bool(request.dry_run),
        request.user_info,
        "" if request.options is None else request.options.field_manager,
        now,
        before,
        error,
        body,
    )
