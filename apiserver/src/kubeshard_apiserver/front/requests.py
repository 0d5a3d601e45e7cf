"""Parses requests: query parameters become the options of verbs, and bodies become objects. Raises Invalid for a
request that cannot be parsed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import yaml

from kubeshard.core.errors import Invalid
from kubeshard.core.kinds import GroupKind
from kubeshard.core.yaml_input import Repeated
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.access import User
from kubeshard_apiserver.front.bodies import duplicates_in_json, duplicates_in_yaml, read_yaml
from kubeshard_apiserver.front.replies import JSON, PROTOBUF, YAML
from kubeshard_apiserver.model import NO_DUPLICATES, Duplicates, Rights, WriteOptions
from kubeshard_apiserver.objects import LARGE
from kubeshard_apiserver.patching import APPLY, JSON_PATCH, MERGE, STRATEGIC
from kubeshard_apiserver.schema import protobuf
from kubeshard_apiserver.schema.catalog import struct
from kubeshard_apiserver.schema.decoding import DecodeState
from kubeshard_apiserver.schema.json_errors import json_problem
from kubeshard_apiserver.schema.validation import go_kind
from kubeshard_apiserver.status import (
    TYPE_META,
    FieldError,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
    required,
    shown,
    too_large_body,
    too_long,
    unsupported,
    unsupported_media_type,
)
from kubeshard_apiserver.verbs.deleting import DeleteOptions, propagation_errors
from kubeshard_apiserver.verbs.reading import ListOptions

LARGEST_BODY = 3 * 1024 * 1024
_BODIES = (JSON, YAML)
_PATCHES = (JSON_PATCH, MERGE, APPLY)
_TYPED_PATCHES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)
_LONGEST_MANAGER = 128
_LONGEST_SHOWN = 1024
_SHOWN = 30
_PARAMETERS = re.compile(r'\s*([^\s;="]+=([^\s;="]+|"([^"\\]|\\.)*")\s*(;\s*|$))*')
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_PEOPLES_PROGRAMS = ("curl", "Wget", "Mozilla/5.0")
_VALIDATIONS = ("Ignore", "Strict", "Warn")
_WHOLE = re.compile(r"[+-]?[0-9]+").fullmatch
_WIDE = 1 << 63


class SentHeaders:
    """The headers of requests, several of which may have one name, and what they say whatever the request is. Read once
    for all requests that share the object.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = tuple(pairs)

    def items(self) -> Sequence[tuple[str, str]]:
        return self._pairs

    @cached_property
    def first(self) -> Mapping[str, str]:
        """By names in lower case."""
        return {name.lower(): value for name, value in self._pairs}

    @cached_property
    def media_type(self) -> str:
        """Of the body. What is no media type is empty."""
        media_type, _, parameters = self._content_type.partition(";")
        return media_type.strip().lower() if not parameters or _PARAMETERS.fullmatch(parameters) else ""

    @cached_property
    def media_type_of_patch(self) -> str:
        """The server reads that of a patch as it stands."""
        return self._content_type.partition(";")[0].strip()

    @property
    def _content_type(self) -> str:
        return self.first.get("content-type") or JSON

    @cached_property
    def by_person(self) -> bool:
        """Whether a person reads the response, judging by the program."""
        return self.first.get("user-agent", "").startswith(_PEOPLES_PROGRAMS)

    @cached_property
    def program(self) -> str:
        """The field manager of requests that do not specify one: the program at the beginning of the User-Agent."""
        return self.first.get("user-agent", "").partition("/")[0][:_LONGEST_MANAGER] or "unknown"

    @cached_property
    def impersonates(self) -> bool:
        return any(name.startswith("impersonate-") for name in self.first)


class Request:
    """A parsed HTTP request: `method`, `path`, `query` (the first value of each name) and `headers` (names in lower
    case).
    """

    def __init__(self, request: HttpRequest) -> None:
        self.method, self.target = request.method, request.target
        self.path, self._query = _split(request.target)
        self.query = _read_query(self._query) if len(self._query) <= _LONGEST_KEPT else _first(self._query)
        sent: Any = request.headers
        self.sent = sent if isinstance(sent, SentHeaders) else SentHeaders(sent.items())
        self.headers = self.sent.first
        self.content_type = self.sent.media_type_of_patch if self.method == "PATCH" else self.sent.media_type
        self.body = request.body or b""
        self._document: Any = None
        """The decoded body, once it has been read."""
        self._repeated: list[Repeated] | None = None
        self._found: Duplicates | None = None
        self._unreadable: Exception | None = None
        self.warnings: list[str] = []
        """Warnings from admission, which are sent to the client whatever the outcome of the request."""

    def every(self, name: str) -> list[str]:
        """Returns all values of a query parameter."""
        return [value for given, value in parse_qsl(self._query, keep_blank_values=True) if given == name]

    def header_values(self, name: str) -> list[str]:
        """Returns all values of a header; `name` is in lower case."""
        return [value for given, value in self.sent.items() if given.lower() == name]

    @property
    def watches(self) -> bool:
        return _flag(self.query, "watch")

    @property
    def pretty(self) -> bool:
        """Whether a person reads the response, who wants line breaks: as the request says, or by the program."""
        if asked := self.query.get("pretty"):
            return asked in _TRUE
        return self.sent.by_person

    @property
    def timeout(self) -> float | None:
        """The timeout of a watch in seconds, or None."""
        return _integer(self.query, "timeoutSeconds") or None

    def list_options(self) -> ListOptions:
        query = self.query
        _integer(query, "timeoutSeconds")
        return ListOptions(
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            shard_selector=query.get("shardSelector", ""),
            resource_version=query.get("resourceVersion", ""),
            match=query.get("resourceVersionMatch", ""),
            limit=_integer(query, "limit"),
            continue_=query.get("continue", ""),
            send_initial_events=_flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
            allow_bookmarks=_flag(query, "allowWatchBookmarks"),
        )

    def write_options(self, options_kind: str, user: User, rights: Rights) -> WriteOptions:
        """Reads the options of a write. `options_kind` is the type named in messages: CreateOptions, UpdateOptions or
        PatchOptions.
        """
        query, errors = self.query, []
        applies = options_kind == "PatchOptions" and self.content_type == APPLY
        manager = query.get("fieldManager", "")
        force = _flag(query, "force")
        if options_kind == "PatchOptions":
            if applies and not manager:
                errors.append(required("fieldManager", "is required for apply patch"))
            if not applies and "force" in query:
                errors.append(forbidden_field("force", "may not be specified for non-apply patch"))
        if len(manager) > _LONGEST_MANAGER:
            errors.append(too_long("fieldManager", _LONGEST_MANAGER))
        validation = query.get("fieldValidation") or "Warn"
        if validation not in _VALIDATIONS:
            errors.append(unsupported("fieldValidation", validation, ("", *_VALIDATIONS)))
        dry_run = self._dry_run(errors, query.get("dryRun"))
        if errors:
            raise invalid(GroupKind("meta.k8s.io", options_kind), "", errors)
        sent: dict[str, Any] = {
            name: query[name] for name in ("fieldManager", "fieldValidation") if query.get(name)
        }
        sent |= {"dryRun": ["All"]} if dry_run else {}
        return WriteOptions(
            manager or self.sent.program,
            dry_run,
            force,
            validation,
            NO_DUPLICATES if validation == "Ignore" else self._duplicates(strict=validation == "Strict"),
            user,
            rights,
            sent=sent,
            warnings=self.warnings,
            large=self.is_large,
        )

    @property
    def is_large(self) -> bool:
        """Whether the body is so large that decoding it would delay other requests."""
        return LARGE < len(self.body) <= LARGEST_BODY

    def read(self) -> None:
        """Decodes the body ahead of its first use. Errors are reported at that use."""
        is_yaml = self.content_type in (YAML, APPLY)
        if is_yaml or self.content_type in (JSON, JSON_PATCH, MERGE, STRATEGIC):
            with contextlib.suppress(msgspec.DecodeError, ValueError, yaml.YAMLError):
                self._find_duplicates(is_yaml=is_yaml)

    def _duplicates(self, *, strict: bool) -> Duplicates:
        """Returns the duplicate fields. Raises Invalid (400) for a strict apply that has some, because it is not
        decoded again later.
        """
        if not self.body or len(self.body) > LARGEST_BODY or self.content_type == PROTOBUF:
            return NO_DUPLICATES
        applies = self.content_type == APPLY
        is_yaml = applies or self.content_type == YAML
        try:
            found = self._find_duplicates(is_yaml=is_yaml)
        except (ValueError, yaml.YAMLError):
            return NO_DUPLICATES
        if strict and applies and found.warnings:
            raise bad_request(f"error strict decoding patch: error converting YAML to JSON: {found.refused}")
        return found

    def _find_duplicates(self, *, is_yaml: bool) -> Duplicates:
        if self._found is None:
            repeated = self._read(is_yaml=is_yaml)
            if repeated is None:
                is_json_patch = self.content_type == JSON_PATCH
                self._found = duplicates_in_json(self.body, self._document, is_json_patch=is_json_patch)
                if is_yaml and self._found.warnings:
                    repeated = read_yaml(self.body)[1]
            if repeated is not None:
                self._found = duplicates_in_yaml(repeated)
        return self._found or NO_DUPLICATES

    def _read(self, *, is_yaml: bool) -> list[Repeated] | None:
        """Decodes the document once. Returns the duplicate keys of a YAML document, or None for JSON. Most clients
        that claim to send YAML send JSON, which is decoded much faster. Raises ValueError, yaml.YAMLError.
        """
        if self._unreadable is not None:
            raise self._unreadable
        if self._document is None:
            try:
                self._document, self._repeated = self._parse(is_yaml=is_yaml)
            except (ValueError, yaml.YAMLError) as error:
                self._unreadable = error
                raise
        return self._repeated

    def _parse(self, *, is_yaml: bool) -> tuple[Any, list[Repeated] | None]:
        if not is_yaml or (self.body.lstrip().startswith((b"{", b"[")) and not _HALF.search(self.body)):
            try:
                return msgspec.json.decode(self.body), None
            except UnicodeDecodeError:
                if not is_yaml:  # the server reads U+FFFD for what is no UTF-8
                    self.body = self.body.decode(errors="replace").encode()
                    return msgspec.json.decode(self.body), None
            except msgspec.DecodeError:
                if not is_yaml:
                    self.body = _without_lone_surrogates(self.body)
                    return msgspec.json.decode(self.body), None
        return read_yaml(self.body)

    def delete_options(self, user: User, rights: Rights) -> DeleteOptions:
        """Reads the options from the body, or from the query if there is no body."""
        body = self.decode() if self.body else {}
        if body.get("kind") not in (None, "", "DeleteOptions"):
            version = body.get("apiVersion") or "meta.k8s.io/v1"
            told = f'no kind "{body["kind"]}" is registered for version "{version}"'
            raise bad_request(f'{told} in scheme "pkg/runtime/scheme.go:111"')
        body = struct("meta.v1.DeleteOptions").decode(body, None, DecodeState("DeleteOptions", "v1"))
        preconditions = body.get("preconditions") or {}
        errors: list[FieldError] = []
        # The query of a request with a body is ignored.
        query = {} if self.body else self.query
        propagation = body.get("propagationPolicy", query.get("propagationPolicy"))
        orphan = body.get("orphanDependents")
        if orphan is None and "orphanDependents" in query:
            orphan = _flag(query, "orphanDependents")
        if propagation is not None:
            if orphan is not None:
                problem = "orphanDependents and deletionPropagation cannot be both set"
                errors.append(invalid_value("propagationPolicy", propagation, problem))
            errors += propagation_errors(propagation)
        elif orphan is not None:
            propagation = "Orphan" if orphan else "Background"
        given = body.get("dryRun") or ([query["dryRun"]] if "dryRun" in query else [])
        dry_run = self._dry_run(errors, *given)
        if errors:
            raise invalid(GroupKind("meta.k8s.io", "DeleteOptions"), "", errors)
        sent = {name: value for name, value in body.items() if name not in ("kind", "apiVersion")}
        if propagation and not body:
            sent["propagationPolicy"] = propagation
        return DeleteOptions(
            preconditions.get("uid"),
            preconditions.get("resourceVersion"),
            propagation,
            dry_run,
            user,
            rights,
            sent=sent | ({"dryRun": ["All"]} if dry_run else {}),
            warnings=self.warnings,
            grace=self._grace(body),
            at_once=orphan is False,
        )

    def _grace(self, body: Mapping[str, Any]) -> int | None:
        given = body.get("gracePeriodSeconds")
        if given is None and not self.body and "gracePeriodSeconds" in self.query:
            return _integer(self.query, "gracePeriodSeconds")
        return given

    def decode(
        self, kind: str = "DeleteOptions", api_version: str = "v1", *, typed: bool = True
    ) -> dict[str, Any]:
        """Decodes the body of a create, replace or delete. `kind` and `api_version` are what the body should contain;
        `typed` says whether the kind has a protobuf form. Raises ApiError (413, 415), Invalid (400).
        """
        if self.content_type == PROTOBUF and typed:
            return self._decode_protobuf(kind, api_version)
        if self.content_type not in _BODIES:
            raise unsupported_media_type((*_BODIES, PROTOBUF))
        is_yaml, before, after = self.content_type == YAML, "", ""
        if kind != "DeleteOptions":
            before = f"the object provided is unrecognized (must be of type {kind}): "
            after = f" ({self._beginning()})"
        parsing = f"{before}couldn't get version/kind; json parse error: "
        document = self._parsed(is_yaml, before if is_yaml else parsing, after)
        if document is None:
            return {}
        if not isinstance(document, dict):
            problem = f"json: cannot unmarshal {go_kind(document)} into Go value of type {TYPE_META}"
            raise bad_request(f"{parsing}{problem}{after}")
        for name in ("apiVersion", "kind"):
            if not isinstance(value := document.get(name) or "", str):
                problem = (
                    f"json: cannot unmarshal {go_kind(value)} into Go struct field .{name} of type string"
                )
                raise bad_request(f"{parsing}{problem}{after}")
        if not typed and not document.get("kind"):
            text = shown(document) if is_yaml else self.body.decode(errors="replace")
            raise bad_request(f"{before}Object 'Kind' is missing in '{text}'{after}")
        return document

    def _beginning(self) -> str:
        """The beginning of the body, as messages show it."""
        begins = self.body[:_SHOWN]
        text = begins.decode(errors="replace") if begins.startswith(b"{") else begins.hex()
        return (text or "<empty>") + (" ..." if len(self.body) > _SHOWN else "")

    def _decode_protobuf(self, kind: str, api_version: str) -> dict[str, Any]:
        if len(self.body) > LARGEST_BODY:
            raise too_large_body(LARGEST_BODY)
        try:
            sent = protobuf.open_envelope(self.body)
        except ValueError as error:
            told = f"{error} ({self.body[:_LONGEST_SHOWN].hex()})"
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): {told}"
            ) from None
        sent = protobuf.Envelope(sent.api_version or api_version, sent.kind or kind, sent.raw)
        try:
            return protobuf.decode_object(sent)
        except protobuf.NoObject as error:
            of = f'{sent.kind} in version "{sent.api_version}"'
            raise bad_request(f"{of} cannot be handled as a {kind}: {error}") from None

    @property
    def applies_json(self) -> bool:
        """Whether this is an apply whose body begins as JSON does."""
        return self.content_type == APPLY and self.body.lstrip().startswith(b"{")

    def check_patch_type(self, *, typed: bool) -> None:
        """Raises ApiError (415). `typed` says whether the kind has a known Go type."""
        accepted = _TYPED_PATCHES if typed else _PATCHES
        if self.content_type not in accepted:
            raise unsupported_media_type(() if typed else accepted)

    def decode_patch(self, *, typed: bool = True) -> Any:
        """Decodes the body of a patch. See `check_patch_type`."""
        self.check_patch_type(typed=typed)
        if self.content_type == APPLY:
            late = "error decoding patch: error converting YAML to JSON: "
            return self._parsed(is_yaml=True, problem=late if self.applies_json else "error encoding patch: ")
        try:
            return self._parsed(is_yaml=False)
        except Invalid:
            raise bad_request("invalid JSON patch") from None

    def _parsed(self, is_yaml: bool, problem: str = "", after: str = "") -> Any:
        if len(self.body) > LARGEST_BODY:
            raise too_large_body(LARGEST_BODY)
        try:
            self._read(is_yaml=is_yaml)
            return self._document
        except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
            told = "" if is_yaml else json_problem(self.body)
            raise bad_request(problem + (told or " ".join(str(error).split())) + after) from None

    def _dry_run(self, errors: list[FieldError], *given: str | None) -> bool:
        asked = [value for value in given if value is not None]
        if any(value != "All" for value in asked):
            errors.append(unsupported("dryRun", asked, ("All",)))
        return bool(asked)


_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""In YAML no escape sequence is half of a surrogate pair, and two are no pair."""
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.S
)


def _without_lone_surrogates(body: bytes) -> bytes:
    """The server reads U+FFFD for a half of a surrogate pair."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], body)


def _first(query: str) -> Mapping[str, str]:
    """Returns the first value of each parameter."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        found.setdefault(name, value)
    return found


_read_query = lru_cache(1024)(_first)
"""Most clients send the same few queries with all of their writes."""
_LONGEST_KEPT = 512


def _split(target: str) -> tuple[str, str]:
    """Splits the target into path and query."""
    if target.startswith("/") and not target.startswith("//") and "#" not in target:
        path, _, query = target.partition("?")
        return path, query
    try:
        parts = urlsplit(target)
    except ValueError:  # not a URL: treated as an unknown path
        return target, ""
    return parts.path, parts.query


def _flag(query: Mapping[str, str], name: str) -> bool:
    """Reads a flag; any value except "false" and "0" is true."""
    return name in query and query[name].lower() not in ("false", "0")


def _integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "0")
    problem = "value out of range" if _WHOLE(text) else "invalid syntax"
    if problem == "invalid syntax" or not -_WIDE <= int(text) < _WIDE:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": {problem}')
    return int(text)
