"""Replies: objects, documents and errors, rendered in the negotiated form.

The form is a media type, and whether a reply contains complete objects, only their metadata, or the rows of a Table. A
client that accepts JSON or YAML does not get protobuf, even if it prefers that: encoding it takes longer here.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import msgspec

from kubeshard.core.errors import ApiError
from kubeshard.core.yaml_output import as_yaml
from kubeshard.runtime.asgi import Source
from kubeshard_apiserver.front.documents import VERSION, Tables, list_document, partial, partial_list
from kubeshard_apiserver.model import Answer
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.schema.protobuf_writing import encode
from kubeshard_apiserver.status import as_status, not_acceptable, only_accepted
from kubeshard_apiserver.verbs.reading import Page

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
WATCH = ";stream=watch"
_PREFERRED = (JSON, YAML)
PRODUCED = (*_PREFERRED, PROTOBUF)
LISTED = (*PRODUCED, JSON + WATCH, PROTOBUF + WATCH)
_META = "meta.k8s.io"
_PARTIAL = ("PartialObjectMetadata", "PartialObjectMetadataList")
_VERSIONS = ("v1", "v1beta1")
_AGGREGATED = ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")

_LONGEST_KEPT = 512


@dataclass(frozen=True)
class Format:
    """The format of a response. `form` is `PartialObjectMetadata` (or its list), `Table` or, for the object itself,
    empty; `version` is the version of the form. `tables` creates the tables; it is set once the resource is known.
    `parameters` are added to the media type; `pretty` means JSON with line breaks.
    """

    media_type: str = JSON
    form: str = ""
    version: str = "v1"
    tables: Tables | None = None
    parameters: str = ""
    pretty: bool = False

    @property
    def content_type(self) -> str:
        return self.media_type + self.parameters

    @cached_property
    def metadata_only(self) -> bool:
        return self.form in _PARTIAL

    @cached_property
    def plain(self) -> bool:
        """Whether objects are sent as they are, in JSON (or YAML, which no watch is)."""
        return not (self.tables or self.metadata_only or self.media_type == PROTOBUF)

    def encode(self, document: Any) -> bytes:
        if self.media_type == YAML:
            return as_yaml(document).encode()
        if self.media_type == PROTOBUF:
            return encode(document)
        return _encoded_json(document, pretty=self.pretty)


DEFAULT = Format()


def _encoded_json(document: Any, *, pretty: bool = False) -> bytes:
    """Returns the body of a response. Go's encoder ends a document with a newline, unless it is a pretty one."""
    encoded = msgspec.json.encode(document)
    return msgspec.json.format(encoded, indent=2) if pretty else encoded + b"\n"


def negotiate(accept: str, routed: Sequence[str] = (), *, transforms: bool = True) -> Format:
    """Returns the format that the client prefers; `transforms` says whether there are other forms. `routed` are the
    types that the router names where it looks at the header first: it knows no wildcard but `*/*`. Raises ApiError
    (406).
    """
    negotiated = _negotiated if len(accept) <= _LONGEST_KEPT else _negotiated.__wrapped__
    format_, is_routed = negotiated(accept, transforms)
    if routed and not is_routed:
        raise not_acceptable(routed)
    if format_ is None:
        raise only_accepted(PRODUCED)
    return format_


@lru_cache(256)
def _negotiated(accept: str, transforms: bool) -> tuple[Format | None, bool]:
    is_routed = _is_routed(accept, PRODUCED)
    for media_type, given in _choices(accept):
        pretty = given.get("pretty") == "1"
        if given.keys().isdisjoint(_TRANSFORMING):
            return Format(media_type, pretty=pretty), is_routed
        form, version = given.get("as", ""), given.get("v", "")
        fits = form in _PARTIAL or (form == "Table" and media_type != PROTOBUF)
        if transforms and fits and given.get("g") == _META and version in _VERSIONS:
            return Format(media_type, form, version, pretty=pretty), is_routed
    return None, is_routed


def negotiate_discovery(accept: str) -> tuple[Format, bool]:
    """Returns the format for a discovery document, and whether the client accepts the aggregated form. Raises ApiError
    (406).
    """
    for media_type, given in _choices(accept):
        pretty = given.get("pretty") == "1"
        if given.keys().isdisjoint(_TRANSFORMING):
            return Format(media_type, pretty=pretty), False
        if tuple(map(given.get, _TRANSFORMING)) == _AGGREGATED and media_type != PROTOBUF:
            kind, group, version = _AGGREGATED
            return Format(media_type, parameters=f";g={group};v={version};as={kind}", pretty=pretty), True
    raise only_accepted(PRODUCED)


def negotiate_error(accept: str) -> Format:
    """Returns the format for a Status: JSON with line breaks if the client accepts nothing that there is."""
    try:
        return negotiate(accept, transforms=False)
    except ApiError:
        return Format(pretty=True)


def first_of(accept: str, offered: Sequence[str]) -> str | None:
    """Returns the offered type that the client prefers, whatever its parameters."""
    choices = ((clause, media_type) for clause in _clauses(accept) for media_type in offered)
    return next((media_type for clause, media_type in choices if clause.accepts(media_type)), None)


_TRANSFORMING = ("as", "g", "v")
"""The parameters that ask for another form."""


def _choices(accept: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields the types that the client accepts, in its order of preference and protobuf last, with their parameters."""
    clauses = [
        (clause, clause.parameters)
        for clause in _clauses(accept)
        if clause.parameters.get("stream", "watch") == "watch" and "sv" not in clause.parameters
    ]
    for offered in (_PREFERRED, (PROTOBUF,)):
        for clause, given in clauses:
            yield from ((media_type, given) for media_type in offered if clause.accepts(media_type))


def _is_routed(accept: str, produced: Sequence[str]) -> bool:
    """Whether the router finds one of the types in the header. Source: go-restful."""
    given = {entry.partition(";")[0].strip(" ") for entry in accept.split(",")}
    return not accept or not given.isdisjoint(("*/*", *produced))


class _Clause(NamedTuple):
    """An entry of an Accept header."""

    type: str
    subtype: str
    quality: float
    parameters: Mapping[str, str]

    def accepts(self, offered: str) -> bool:
        type_, _, subtype = offered.partition("/")
        return (self.type, self.subtype) == ("*", "*") or (
            self.type == type_ and self.subtype in ("*", subtype)
        )

    def is_before(self, other: _Clause) -> bool:
        """As the server compares them: one that is less general precedes even one of a higher quality."""
        return (
            self.quality > other.quality
            or self.type != "*" == other.type
            or self.subtype != "*" == other.subtype
        )


_EVERYTHING = (_Clause("*", "*", 1.0, {}),)
_QUALITY = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch


def _clauses(accept: str) -> Sequence[_Clause]:
    """Reads an Accept header. What is no media type, and parameters without a value, are passed over. Source:
    munnerz/goautoneg.
    """
    clauses: list[_Clause] = []
    for entry in accept.split(","):
        media_type, *rest = entry.strip(" ").split(";")
        type_, _, subtype = media_type.partition("/")
        type_, (subtype, _, more) = type_.strip(" "), subtype.partition("/")
        if more or not (subtype or type_ == "*"):
            continue
        pairs = (parameter.partition("=") for parameter in rest)
        given = {name.strip(" "): value for name, _, value in pairs if value and "=" not in value[:-1]}
        said = given.pop("q", "1")
        parameters = {name: value.removesuffix("=").strip(" ") for name, value in given.items()}
        quality = float(said) if _QUALITY(said) else 0.0
        clause = _Clause(type_, subtype.strip(" ") or "*", quality, parameters)
        place = len(clauses)
        while place and clause.is_before(clauses[place - 1]):
            place -= 1
        clauses.insert(place, clause)
    return clauses if accept else _EVERYTHING


TEXT = "text/plain; charset=utf-8"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class OpenSource(Source, Protocol):
    open: ExitStack
    """Closed at its end."""

    def finish(self) -> None:
        """Ends it as if it had timed out."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply. `stream` replaces `body` if the reply is sent in chunks; if `source` is set, they may be taken
    from there instead. `warnings` are texts; each is sent as a `Warning` header of its own, which is not in `headers`.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: AsyncGenerator[bytes, None] | None = None
    source: OpenSource | None = None
    warnings: tuple[str, ...] = ()

    @property
    def warning_headers(self) -> list[str]:
        """The value of each `Warning` header. The server sends no text that is empty or has control characters."""
        return [
            f"299 - {_quoted(text)}"
            for text in _shortened(self.warnings)
            if text and not CONTROL.search(text)
        ]


def object_reply(answer: Answer, format_: Format, text: bytes = b"") -> Reply:
    """`text` is the JSON of the object, if it is known."""
    document = answer.object
    if not document:
        return Reply(answer.code, {} if answer.code == 204 else {"content-type": "text/plain"})
    if document.get("kind") != "Status":
        if format_.tables:
            document = format_.tables.of_object(document)
        elif format_.metadata_only:
            document = partial(document, format_.version)
        elif text and format_.media_type == JSON and not format_.pretty:
            headers = {"content-type": format_.content_type}
            return Reply(answer.code, headers, text + b"\n", warnings=answer.warnings)
    return document_reply(answer.code, document, format_, answer.warnings)


def list_reply(resource: Resource, page: Page, format_: Format) -> Reply:
    if format_.tables:
        document = format_.tables.of_page(page)
    elif format_.metadata_only:
        document = partial_list(page, format_.version, encoded=format_.media_type == JSON)
    else:
        document = list_document(resource, page, encoded=format_.media_type == JSON)
    return document_reply(200, document, format_)


def document_reply(status: int, document: Any, format_: Format, warnings: tuple[str, ...] = ()) -> Reply:
    headers = {"content-type": format_.content_type}
    return warned(Reply(status, headers, format_.encode(document)), warnings)


def version_reply(accept: str) -> Reply:
    """Replies with the version, which is JSON with line breaks for all clients. Raises ApiError (406)."""
    if not _is_routed(accept, (JSON,)):
        raise not_acceptable((JSON,))
    return Reply(200, {"content-type": JSON}, _encoded_json(VERSION, pretty=True))


def refusal(error: ApiError, format_: Format = DEFAULT) -> Reply:
    headers = {"content-type": format_.media_type}
    if seconds := error.details.get("retryAfterSeconds"):
        headers["retry-after"] = str(seconds)
    return Reply(error.code, headers, format_.encode(as_status(error)))


def warned(reply: Reply, texts: Sequence[str]) -> Reply:
    """Returns the reply with these warnings added."""
    return replace(reply, warnings=tuple(dict.fromkeys((*reply.warnings, *texts)))) if texts else reply


def text_reply(status: int, text: str) -> Reply:
    return Reply(status, {"content-type": TEXT, "x-content-type-options": "nosniff"}, text.encode())


def page_not_found() -> Reply:
    return text_reply(404, "404 page not found\n")


_LONGEST_WARNINGS = 4096
_LONGEST_WARNING = 256


def _shortened(warnings: tuple[str, ...]) -> Sequence[str]:
    """If they are too long together, each is cut off from then on, and what still does not fit is left out."""
    totals = list(accumulate(map(len, warnings)))
    exceeding = bisect_right(totals, _LONGEST_WARNINGS)
    if exceeding == len(warnings):
        return warnings
    cut = [text[:_LONGEST_WARNING] for text in warnings]
    before = list(accumulate(map(len, cut), initial=0))
    fitting = bisect_left(before, _LONGEST_WARNINGS)
    return cut[: max(fitting, exceeding + 1)]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
