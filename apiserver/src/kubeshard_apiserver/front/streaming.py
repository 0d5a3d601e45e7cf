"""A watch as bytes: one JSON document per line, until the watch times out or ends with an ERROR.

Guaranteed: the next event is read from the watch only after the client has received the previous one, so a slow reader
delays only itself; clients that allow bookmarks get one every minute.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

import msgspec

from kubeshard.core.errors import ApiError
from kubeshard_apiserver.front.documents import partial, raw_partial
from kubeshard_apiserver.front.replies import JSON, PROTOBUF, Format
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.schema.protobuf_writing import encode_event
from kubeshard_apiserver.status import as_status
from kubeshard_apiserver.verbs.watching import WatchCursor, WatchEvent

DEFAULT_SECONDS = 1800.0
BOOKMARK_SECONDS = 60.0
MOST_KEPT = 1024 * 1024
"""The maximum size of the lines that are kept for further watchers. Lines from before the current iteration of the
event loop are rarely needed.
"""


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
        if not format_.plain:
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


class EventSource:
    """The lines of a watch as they become available, for a caller that is told when there may be more (see
    `kubeshard.runtime.asgi.Source`). Nothing is read from the watch before it is asked for.

    `failed` makes the last line of a watch that cannot continue; `counted` is entered for as long as it lasts.
    """

    def __init__(
        self,
        watch: WatchCursor,
        format_: Format,
        lines: EventLines,
        *,
        seconds: float | None,
        bookmarks: bool,
        failed: Callable[[Exception], bytes],
        counted: AbstractContextManager[None],
    ) -> None:
        self._watch = watch
        self._format = format_
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._end = now + (seconds or DEFAULT_SECONDS)
        self._next_bookmark = now + BOOKMARK_SECONDS if bookmarks else self._end
        self._failed = failed
        self._counted = counted
        self._timer: asyncio.TimerHandle | None = None
        self.open = ExitStack()
        """Closed at the end."""
        self._changed: Callable[[], None] = _nothing
        self.more = False

    def begin(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.open.enter_context(self._counted)
        self.open.callback(self._watch.on_change(changed))

    def take(self) -> bytes | None:
        try:
            return self.lines_of(self._watch.take())
        except Exception as error:
            return self.broken(error)

    def lines_of(self, events: Sequence[WatchEvent]) -> bytes | None:
        """What `take` returns if these are the events that the watch returns."""
        watch, now = self._watch, self._loop.time()
        self.more = watch.behind
        lines = b"".join([self._lines.line(event, self._format) for event in events])
        if not events:
            if watch.ended or now >= self._end:
                return None
            if now >= self._next_bookmark:
                self._next_bookmark += BOOKMARK_SECONDS
                if watch.reached:
                    lines = _line(watch.bookmark(), self._format)
        if self._timer is None:  # one for many events: a timeout for each wait would cost more than the event
            self._timer = self._loop.call_at(min(self._end, self._next_bookmark), self._due)
        return lines

    def broken(self, error: Exception) -> bytes:
        """The last line, after an error."""
        self._end, self.more = -math.inf, True
        self._watch.ended = True
        return self._failed(error)

    def finish(self) -> None:
        """Ends the stream as if it had timed out."""
        self._end = -math.inf
        self._changed()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.open.close()

    def _due(self) -> None:
        self._timer = None
        self._changed()


def _nothing() -> None: ...


async def event_stream(
    source: EventSource, take: Callable[[], Awaitable[bytes | None]]
) -> AsyncGenerator[bytes, None]:
    """Yields what a source has; `take` takes it from there. Raises what `take` raises."""
    changed = asyncio.Event()
    source.begin(changed.set)
    try:
        while True:
            changed.clear()
            lines = await take()
            if lines is None:
                return
            if lines:
                yield lines
            elif not source.more:
                await changed.wait()
    finally:
        source.close()


def error_line(error: ApiError) -> bytes:
    """Returns the last line of a stream that cannot continue."""
    return msgspec.json.encode({"type": "ERROR", "object": as_status(error)}) + b"\n"


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
