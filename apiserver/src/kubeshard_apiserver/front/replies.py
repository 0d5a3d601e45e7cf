"""Replies: objects, documents and errors, rendered in the requested form."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kubeshard.core.errors import ApiError
from kubeshard_apiserver.front.documents import VERSION, list_document, partial, partial_list
from kubeshard_apiserver.front.negotiation import DEFAULT, JSON, Format, encoded_json, first_of
from kubeshard_apiserver.model import Answer
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.status import as_status, not_acceptable
from kubeshard_apiserver.verbs.reading import Page

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Reply:
    """An HTTP reply. `stream` replaces `body` if the reply is sent in chunks."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: AsyncGenerator[bytes, None] | None = None
    warnings: tuple[str, ...] = field(default=())


def object_reply(resource: Resource, answer: Answer, format_: Format) -> Reply:
    document = answer.object
    if answer.code == 204:
        return Reply(204, {})
    if document.get("kind") != "Status":
        if format_.tables:
            document = format_.tables.of_object(document)
        elif format_.metadata_only:
            document = partial(document, format_.version)
    return document_reply(answer.code, document, format_, answer.warnings)


def list_reply(resource: Resource, page: Page, format_: Format) -> Reply:
    if format_.tables:
        document = format_.tables.of_page(page)
    elif format_.metadata_only:
        document = partial_list(page, format_.version)
    else:
        document = list_document(resource, page, encoded=format_.media_type == JSON)
    return document_reply(200, document, format_)


def document_reply(status: int, document: Any, format_: Format, warnings: tuple[str, ...] = ()) -> Reply:
    headers = {"content-type": format_.content_type}
    return warned(Reply(status, headers, format_.encode(document)), warnings)


def version_reply(accept: str) -> Reply:
    """Replies with the version, which is JSON with line breaks for all clients. Raises ApiError (406)."""
    if first_of(accept, (JSON,)) is None:
        raise not_acceptable((JSON,))
    return Reply(200, {"content-type": JSON}, encoded_json(VERSION, pretty=True))


def refusal(error: ApiError, format_: Format = DEFAULT) -> Reply:
    headers = {"content-type": format_.media_type}
    if seconds := error.details.get("retryAfterSeconds"):
        headers["retry-after"] = str(seconds)
    return Reply(error.code, headers, format_.encode(as_status(error)))


def warned(reply: Reply, texts: Sequence[str]) -> Reply:
    """Returns the reply with these warnings added."""
    if not texts:
        return reply
    warnings = tuple(dict.fromkeys((*reply.warnings, *texts)))
    header = ", ".join(f"299 - {_quoted(text)}" for text in warnings)
    return replace(reply, headers={**reply.headers, "warning": header}, warnings=warnings)


def text_reply(status: int, text: str) -> Reply:
    return Reply(status, {"content-type": TEXT, "x-content-type-options": "nosniff"}, text.encode())


def page_not_found() -> Reply:
    return text_reply(404, "404 page not found\n")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
