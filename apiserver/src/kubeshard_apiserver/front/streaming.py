"""A watch as bytes: one JSON document per line, until the watch times out or ends with an ERROR.

Guaranteed: the next event is read from the watch only after the client has received the previous one, so a slow reader
delays only itself; clients that allow bookmarks get one every minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from kubeshard.core.errors import ApiError
from kubeshard_apiserver.front.documents import partial, raw_partial
from kubeshard_apiserver.front.replies import JSON, PROTOBUF, Format
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.schema.protobuf_writing import encode_event
from kubeshard_apiserver.status import as_status
from kubeshard_apiserver.verbs.watching import WatchCursor, WatchEvent

Converted = Callable[[Callable[[], list[WatchEvent]]], Awaitable[list[WatchEvent]]]

DEFAULT_SECONDS = 1800.0
BOOKMARK_SECONDS = 60.0
MOST_KEPT = 1024 * 1024
"""The maximum size of the lines that are kept for further watchers. Lines from before the current iteration of the
event loop are rarely needed.
"""


async def event_stream(
    watch: WatchCursor,
    format_: Format,
    lines: EventLines,
    converted: Converted | None = None,
    *,
    seconds: float | None,
    bookmarks: bool,
) -> AsyncGenerator[bytes, None]:
    """Yields chunks of complete lines. `converted` takes the events of a kind that a webhook converts; if that fails,
    the watch ends, and the client lists again.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + (seconds or DEFAULT_SECONDS)
    next_bookmark = loop.time() + BOOKMARK_SECONDS if bookmarks else end
    changed = asyncio.Event()
    forget = watch.on_change(changed.set)
    timer: asyncio.TimerHandle | None = None

    def due() -> None:
        nonlocal timer
        timer = None
        changed.set()

    try:
        while True:
            changed.clear()
            try:
                events = await converted(watch.take) if converted is not None else watch.take()
            except ApiError:
                return
            if events:
                yield b"".join([lines.line(event, format_) for event in events])
                continue
            if watch.ended or loop.time() >= end:
                return
            if loop.time() >= next_bookmark:
                next_bookmark += BOOKMARK_SECONDS
                if watch.reached:
                    yield _line(watch.bookmark(), format_)
            if timer is None:  # one for many events: a timeout for each wait would cost more than the event
                timer = loop.call_at(min(end, next_bookmark), due)
            await changed.wait()
    finally:
        if timer is not None:
            timer.cancel()
        forget()


def error_line(error: ApiError) -> bytes:
    """Returns the last line of a stream that cannot continue."""
    return msgspec.json.encode({"type": "ERROR", "object": as_status(error)}) + b"\n"


_BEGINNINGS = {
    type_: b'{"type":"%b","object":' % type_.encode() for type_ in ("ADDED", "MODIFIED", "DELETED")
}


class EventLines:
    """Encodes the line of an event once for all watchers that get it at about the same time.

    Events are identified by the identity of their objects, which are never modified and are kept alive here.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], tuple[Object, bytes]] = {}
        self._size = 0

    def line(self, event: WatchEvent, format_: Format) -> bytes:
        if format_.tables or format_.metadata_only or format_.media_type == PROTOBUF:
            return _line(event, format_)
        if event.data:
            return _BEGINNINGS[event.type] + event.data + b"}\n"
        key = (id(event.object), event.type)
        if known := self._made.get(key):
            return known[1]
        line = _line(event, format_)
        self._made[key] = (event.object, line)
        self._size += len(line)
        while self._size > MOST_KEPT:
            _, oldest = self._made.pop(next(iter(self._made)))
            self._size -= len(oldest)
        return line


def _line(event: WatchEvent, format_: Format) -> bytes:
    if event.data and event.type != "ERROR" and format_.metadata_only and format_.media_type == JSON:
        return (
            msgspec.json.encode({"type": event.type, "object": raw_partial(event.data, format_.version)})
            + b"\n"
        )
    obj = event.object
    if event.type != "ERROR":
        if format_.tables:
            obj = format_.tables.of_event(obj)
        elif format_.metadata_only:
            obj = partial(obj, format_.version)
    if format_.media_type == PROTOBUF:
        return encode_event(event.type, obj)
    return msgspec.json.encode({"type": event.type, "object": obj}) + b"\n"
