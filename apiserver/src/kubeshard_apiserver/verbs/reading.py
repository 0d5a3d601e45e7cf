"""get and list: the current state, or the state as of a resource version.

See KEP-2340 and kubernetes.io "API concepts" on resourceVersion.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key
from kubeshard_apiserver.model import Model, Target, in_version
from kubeshard_apiserver.objects import Object, beginning, key_of
from kubeshard_apiserver.resources.conversion_webhooks import Unconvertible, each
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.schema.json_errors import json_problem
from kubeshard_apiserver.schema.validation import go_kind
from kubeshard_apiserver.states import Items, Objects, State
from kubeshard_apiserver.status import (
    FieldError,
    bad_request,
    expired,
    forbidden_field,
    internal,
    internal_error,
    invalid,
    too_large_version,
    unsupported,
)
from kubeshard_apiserver.store import TooOld
from kubeshard_apiserver.verbs.selectors import Selection, check_selectors, select
from kubeshard_apiserver.verbs.shard_selectors import ShardRanges

LIST_OPTIONS = GroupKind("meta.k8s.io", "ListOptions")
_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - the version of continue tokens, not a secret
_PRESENT = -1
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True)
class ListOptions:
    """The query parameters of the same names; a missing one is empty or None."""

    label_selector: str = ""
    field_selector: str = ""
    shard_selector: str = ""
    resource_version: str = ""
    match: str = ""
    limit: int = 0
    continue_: str = ""
    send_initial_events: bool | None = None
    allow_bookmarks: bool = False


@dataclass(frozen=True)
class Page:
    """A page of a list. `continue_` is empty on the last page; `remaining` is None if the server does not count the
    remaining items.
    """

    items: Items
    resource_version: str
    continue_: str = ""
    remaining: int | None = None
    ranges: ShardRanges | None = None
    """Which ranges of hashes it has; None if it has all."""


class Reads:
    """`shards`: whether shard selectors are heeded."""

    def __init__(self, model: Model, *, shards: bool) -> None:
        self._model = model
        self._store = model.store
        self._shards = shards

    def get(self, target: Target, resource_version: str = "") -> Object:
        """Returns the current object; for a subresource too, this is the object itself. Raises NotFound."""
        self.check_reached(parse_version(resource_version, of_list=False))
        return self._model.live(target)

    def unreadable(self, target: Target, error: Unconvertible) -> ApiError:
        """The answer about an object that was not converted: if it is the stored one, it is corrupt."""
        resource = target.group_resource
        stored = self._store.get(resource, target.key)
        if stored is None or stored["apiVersion"] != error.api_version:
            return error
        place = "/".join(part for part in (resource.group, resource.resource, *target.key) if part)
        return internal_error(
            f"StorageError: corrupt object, Code: 7, Key: /{place}, ResourceVersion: 0, AdditionalErrorMsg: object not "
            f"decodable revision={stored['metadata']['resourceVersion']}: {error}"
        )

    def list(self, target: Target, options: ListOptions | None = None) -> Page:
        """Returns the selected objects, ordered by namespace and name. Raises Gone if the requested version has
        expired, and Timeout if it is in the future.
        """
        options = options or ListOptions()
        check_selectors(options.label_selector, options.field_selector)
        check_list_options(options)
        selection = self.selection(target, options)
        if options.continue_:
            return self._continue(target, selection, options)
        asked = parse_version(options.resource_version)
        self.check_reached(asked)
        exact = options.match == "Exact" or bool(asked and options.limit and not options.match)
        limit = 0 if options.resource_version == "0" else max(0, options.limit)
        revision = asked if exact else self._store.revision
        return self.page(target, selection, revision, "", limit)

    def text(self, target: Target, obj: Object) -> bytes:
        """Returns the JSON of the object if it is the one that is stored, which is encoded already; else nothing."""
        try:
            objects = self._store.objects(target.group_resource)
            state = objects.state(key_of(obj)) if isinstance(objects, Objects) else None
        except KeyError:  # of an object, or of a whole kind, that has gone with this very write
            return b""
        return state.data if state is not None and state.peek() is obj else b""

    def selection(self, target: Target, options: ListOptions) -> Selection:
        """Raises Invalid, ApiError: see `select`."""
        shard_selector = options.shard_selector if self._shards else ""
        return select(target, options.label_selector, options.field_selector, shard_selector)

    def _continue(self, target: Target, selection: Selection, options: ListOptions) -> Page:
        revision, start = _read_token(options.continue_)
        if options.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision = self._store.revision if revision < 0 else revision
        self.check_reached(revision)
        # As on the server, the position in a token is relative to the namespace that is listed.
        if target.namespace or not target.resource.kind.namespaced:
            start = f"{target.namespace}/{start}"
        return self.page(target, selection, revision, start, max(0, options.limit))

    def page(self, target: Target, selection: Selection, revision: int, start: str, limit: int) -> Page:
        """Returns the selected objects as of a revision, from `start` on; 0 as `limit` means no limit. Raises Gone."""
        state = self._snapshot(target, revision, start)
        if state is self._store.objects(target.group_resource):
            ordered = self._store.ordered(target.group_resource)
        else:
            ordered = sorted((f"{key.namespace}/{key.name}", key) for key in state)
        begin, end = _range(ordered, target.namespace, start)
        items: list[State | Object] = []
        last = start
        resource = target.resource
        as_stored = _as_stored(resource, selection)
        if resource.strategy.needs_webhook:  # selectors see the version of the request
            found = [state[key] for _, key in ordered[begin:end]]
            state = {key_of(obj): obj for obj in each(found, lambda obj: in_version(resource, obj))}
        for place in range(begin, end):
            text, key = ordered[place]
            kept = state.state(key) if isinstance(state, Objects) else None
            if kept is not None and not selection.may_select(key, kept):
                continue
            is_whole = kept is not None and as_stored and kept.data.startswith(as_stored)
            obj = {} if is_whole else state[key]
            if not (is_whole or selection.selects(obj)):
                continue
            if limit and len(items) == limit:
                token = _token(target, revision, last + "\0")
                is_partial = selection.narrows or selection.name or selection.ranges is not None
                remaining = None if is_partial else end - begin - limit
                return Page(Items(items), str(revision), token, remaining, selection.ranges)
            items.append(kept if is_whole and kept is not None else in_version(resource, obj))
            last = text
        return Page(Items(items), str(revision), ranges=selection.ranges)

    def _snapshot(self, target: Target, revision: int, start: str) -> Mapping[Key, Object]:
        try:
            return self._store.at(target.group_resource, revision)
        except TooOld:
            if start:
                raise expired(_CONTINUE_EXPIRED, _token(target, _PRESENT, start)) from None
            raise expired("The resourceVersion for the provided list is too old.") from None

    def check_reached(self, asked: int) -> None:
        """Raises Timeout if the version is in the future."""
        if asked > self._store.revision:
            raise too_large_version(asked, self._store.revision)


def _as_stored(resource: Resource, selection: Selection) -> bytes:
    """The beginning of objects that are listed just as they are stored; empty if all have to be looked at."""
    if selection.fields or selection.name or resource.strategy.reads_anew or resource.strategy.needs_webhook:
        return b""
    return beginning(resource.kind.kind, resource.kind.api_version)


def check_list_options(options: ListOptions, *, watch: bool = False) -> None:
    """Checks that the options can be combined. Raises Invalid (422)."""
    errors = list(_watch_errors(options) if watch else _list_errors(options))
    if errors:
        raise invalid(LIST_OPTIONS, "", errors)


def parse_version(text: str, *, of_list: bool = True) -> int:
    """Parses a resource version. For one that is not a number it raises Invalid (400) for a list, and ApiError (500)
    for everything else, as the server does.
    """
    if text == "" or text.isdecimal():
        version = int(text or 0)
        if version < 1 << 64:
            return version
        why = "value out of range"
    else:
        why = "invalid syntax"
    problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}'
    raise bad_request(f"invalid resource version: {problem}") if of_list else internal(problem)


_MATCH = "resourceVersionMatch"


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors = []
    if match := options.match:
        if not options.resource_version:
            errors.append(
                forbidden_field(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
            )
        if options.continue_:
            errors.append(forbidden_field(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            errors.append(unsupported(_MATCH, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and options.resource_version == "0":
            errors.append(forbidden_field(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial_events is not None:
        errors.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    errors = []
    match, initial = options.match, options.send_initial_events
    if initial is not None and match != "NotOlderThan":
        errors.append(forbidden_field(_MATCH, f"sendInitialEvents requires setting {_MATCH} to NotOlderThan"))
    if match and initial is None:
        errors.append(
            forbidden_field(_MATCH, f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided")
        )
    if match and match != "NotOlderThan":
        errors.append(unsupported(_MATCH, match, ("NotOlderThan",)))
    return errors


def _range(ordered: Sequence[tuple[str, Key]], namespace: str, start: str) -> tuple[int, int]:
    """Returns the range of the keys from `start` to the end of the namespace, or to the end of the list if there is no
    namespace.
    """
    begin = bisect_left(ordered, max(start, f"{namespace}/" if namespace else ""), key=_text)
    # "0" is the character after "/".
    return begin, bisect_left(ordered, f"{namespace}0", begin, key=_text) if namespace else len(ordered)


def _text(place: tuple[str, Key]) -> str:
    return place[0]


def _token(target: Target, revision: int, start: str) -> str:
    place = start.removeprefix(f"{target.namespace}/")
    text = json.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": place}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    """Returns the revision, which is negative for the present, and where to start. Raises Invalid (400)."""
    if (bad := _NOT_BASE64.search(token)) is not None:
        raise _invalid_token(f": illegal base64 data at input byte {len(token[: bad.start()].encode())}")
    digits = _BREAKS.sub("", token)
    if len(digits) % 4 == 1:
        raise _invalid_token(f": illegal base64 data at input byte {len(token) - 1}")
    text = base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    if problem := json_problem(text):
        raise _invalid_token(f": {problem}")
    version, revision, start = _read_fields(json.loads(text.decode(errors="replace")))
    if version != _TOKEN_VERSION:
        raise _invalid_token(f": server does not recognize this encoded version {version}")
    if revision == 0:
        raise _invalid_token(f": incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    if not start:
        raise _invalid_token(f": encoded start key empty (version {_TOKEN_VERSION})")
    place = start.removeprefix("/")
    if place and not {"", ".", ".."}.isdisjoint(place.split("/")):
        raise _invalid_token(f": {start}")
    return revision, place


_FIELDS: Sequence[tuple[str, Any, str]] = (("v", "", "string"), ("rv", 0, "int64"), ("start", "", "string"))


def _read_fields(content: Any) -> list[Any]:
    """Returns what a token says, or the zeros of what it does not say."""
    where = "Go value of type storage.continueToken"
    if content is not None and not isinstance(content, dict):
        raise _invalid_token(f": json: cannot unmarshal {go_kind(content)} into {where}")
    said = []
    for name, zero, type_ in _FIELDS:
        value = (content or {}).get(name)
        value = zero if value is None else value
        if type(value) is not type(zero) or (zero == 0 and not -(1 << 63) <= value < 1 << 63):
            given = f"number {value}" if go_kind(value) == "number" and zero == 0 else go_kind(value)
            field = f"Go struct field continueToken.{name} of type {type_}"
            raise _invalid_token(f": json: cannot unmarshal {given} into {field}")
        said.append(value)
    return said


def _invalid_token(problem: str) -> Exception:
    return bad_request(f"invalid continue token: continue key is not valid{problem}")


_BREAKS = re.compile(r"[\r\n]")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9_\r\n-]")
