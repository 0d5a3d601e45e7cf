"""Conversion of objects between the versions of their kind: ConversionReviews, answered by steps (`converts`).

Guaranteed: the path from one version to another is the shortest one, through a hub if there is no direct step; the
identity of an object does not change; one object that cannot be converted fails the review with its name, as the API
server requires, and nothing else does. Not guaranteed: fields that a class on the path does not declare; that a review
ends in time if a step that is a plain function takes long, because nothing can interrupt it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from kubeshard.core.encoding import UNREADABLE, UndecodableObject, decode, to_dict
from kubeshard.core.kinds import GroupKind, TypeMeta
from kubeshard.core.objects import KubeObject, ObjectMeta, Struct, form_of
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import awaited_apart
from kubeshard.webhook.review import InvalidReview
from kubeshard.webhook.typed import Converts, Denied, says_of

MAX_BODY = 64 * 1024 * 1024
"""Bytes. A review contains as many objects as the list that somebody requested."""

MAX_IN_FLIGHT = 4
"""The maximum number of concurrent reviews, which bounds their memory."""

_BREATH = 100
"""The number of objects after which other tasks get a turn."""

_LOG = get_logger("kubeshard.webhook")

Step = Callable[[Any], Any]


class CannotConvert(Exception):
    """The object cannot be converted. The message is shown to the user."""


@dataclass(slots=True)
class Conversion:
    """The steps between the versions of one kind."""

    kind: GroupKind
    max_body: int = MAX_BODY
    max_in_flight: int = MAX_IN_FLIGHT
    _classes: dict[str, type[KubeObject]] = field(default_factory=dict)
    _steps: dict[tuple[str, str], Step] = field(default_factory=dict)

    @property
    def classes(self) -> Sequence[type[KubeObject]]:
        return tuple(self._classes.values())

    def add(self, function: Step) -> None:
        """Adds a step. Raises ValueError for a second step between two versions, or a second class for a version."""
        says = says_of(function)
        assert isinstance(says, Converts)
        for cls in (says.old, says.new):
            if self._classes.setdefault(cls.KIND.api_version, cls) is not cls:
                raise ValueError(f"{cls.KIND} is converted as {cls.__name__} and as another class")
        way = says.old.KIND.api_version, says.new.KIND.api_version
        if way in self._steps:
            raise ValueError(f"two functions convert {says.old.KIND} to {way[1]}")
        self._steps[way] = function

    def check(self) -> None:
        """Raises ValueError if there is no path between two versions."""
        for old in self._classes:
            for new in self._classes:
                if self.way(old, new) is None:
                    raise ValueError(
                        f"{self.kind}: no function converts {old} to {new}, and none over others"
                    )

    def way(self, old: str, new: str) -> Sequence[str] | None:
        """The path from one version to the other, including both."""
        ways: list[list[str]] = [[old]]
        seen = {old}
        for way in ways:
            if way[-1] == new:
                return way
            for here, there in self._steps:
                if here == way[-1] and there not in seen:
                    seen.add(there)
                    ways.append([*way, there])
        return None

    async def answer(self, body: bytes | bytearray, failed: Callable[[], None], patience: float) -> bytes:
        """The answering review. `failed` is called if a step raises. Raises InvalidReview."""
        request = _decoded(body)
        try:
            async with asyncio.timeout(patience):
                objects = await self._converted(request, failed)
        except CannotConvert as error:
            return _answer(_Response(request.uid, _Result("Failure", str(error)), ()))
        except TimeoutError:
            failed()
            return _answer(_Response(request.uid, _Result("Failure", "conversion took too long"), ()))
        return _answer(_Response(request.uid, _Result("Success"), objects))

    async def _converted(self, request: _Request, failed: Callable[[], None]) -> list[Any]:
        objects = []
        for number, raw in enumerate(request.objects):
            if number % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
            objects.append(await self.converted(raw, request.desired_api_version, failed))
        return objects

    async def converted(self, raw: msgspec.Raw, wanted: str, failed: Callable[[], None]) -> Any:
        """One object as JSON. Raises CannotConvert."""
        try:
            whole: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
            found = msgspec.convert(whole, TypeMeta)
        except msgspec.ValidationError as error:
            raise CannotConvert(f"not an object: {error}") from None
        way = self.way(found.api_version, wanted) if found.api_version in self._classes else None
        if way is None or found.kind != self.kind.kind:
            raise CannotConvert(f"no way from {found.kind} of {found.api_version} to {wanted}")
        try:
            obj = decode(form_of(self._classes[way[0]]), raw)
        except UndecodableObject as error:
            raise CannotConvert(str(error)) from None
        came = obj.metadata
        for here, there in pairwise(way):
            obj = await self._step(obj, here, there, failed)
        return {**to_dict(obj), "metadata": _metadata(whole.get("metadata") or {}, came, obj.metadata)}

    async def _step(self, obj: KubeObject, here: str, there: str, failed: Callable[[], None]) -> KubeObject:
        try:
            result = self._steps[here, there](obj)
            if isinstance(result, Awaitable):
                result = await awaited_apart(result)
            if not isinstance(result, self._classes[there]):
                raise TypeError(f"a conversion to {there} returned {type(result).__name__}")
        except Denied as denied:
            raise CannotConvert(f"{self.kind} {obj.key}: {denied.message}") from None
        except Exception as error:
            failed()
            _LOG.crash("Conversion failed", error, object=str(obj.key), to=there)
            name = type(error).__name__
            raise CannotConvert(f"{self.kind} {obj.key}: conversion to {there} failed: {name}") from None
        if result.metadata == ObjectMeta():
            return msgspec.structs.replace(result, metadata=obj.metadata)
        return result


def _metadata(whole: Mapping[str, Any], came: ObjectMeta, goes: ObjectMeta) -> dict[str, Any]:
    found = dict(whole)
    for name in ("labels", "annotations"):
        value = getattr(goes, name)
        if value != getattr(came, name):
            found.pop(name, None)
            if value:
                found[name] = dict(value)
    return found


class _Request(Struct):
    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: tuple[msgspec.Raw, ...] = ()


class _Review(Struct):
    api_version: str
    request: _Request


class _Result(msgspec.Struct, omit_defaults=True):
    status: str
    message: str = ""


class _Response(msgspec.Struct, rename={"objects": "convertedObjects"}):
    uid: str
    result: _Result
    objects: Sequence[Any]


class _Answer(msgspec.Struct, rename="camel"):
    response: _Response
    api_version: str = "apiextensions.k8s.io/v1"
    kind: str = "ConversionReview"


def _decoded(body: bytes | bytearray) -> _Request:
    try:
        review = msgspec.json.decode(body, type=_Review)
    except UNREADABLE as error:
        raise InvalidReview(f"not a ConversionReview: {error}") from None
    if review.api_version != "apiextensions.k8s.io/v1":
        raise InvalidReview("not a ConversionReview of apiextensions.k8s.io/v1")
    return review.request


def _answer(response: _Response) -> bytes:
    return msgspec.json.encode(_Answer(response))
