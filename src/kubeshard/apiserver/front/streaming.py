"""A watch as bytes: one JSON document per line, until its time is over or it ends in an ERROR.

Guaranteed: nothing is read from the watch before what was read has been taken, so a slow reader slows nobody
but itself; a bookmark a minute where the client takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from kubeshard.apiserver.front.documents import partial
from kubeshard.apiserver.front.negotiation import Format
from kubeshard.apiserver.watching import Watch, WatchEvent

DEFAULT_SECONDS = 1800.0
BOOKMARK_SECONDS = 60.0


async def event_stream(
    watch: Watch, format_: Format, *, seconds: float | None, bookmarks: bool
) -> AsyncGenerator[bytes, None]:
    """Chunks of whole lines."""
    loop = asyncio.get_running_loop()
    end = loop.time() + (seconds or DEFAULT_SECONDS)
    next_bookmark = loop.time() + BOOKMARK_SECONDS if bookmarks else end
    changed = asyncio.Event()
    forget = watch.on_change(changed.set)
    try:
        while not watch.ended:
            changed.clear()
            if events := watch.take():
                yield b"".join(_line(event, format_) for event in events)
                continue
            if loop.time() >= end:
                return
            if loop.time() >= next_bookmark:
                next_bookmark += BOOKMARK_SECONDS
                yield _line(watch.bookmark(), format_)
            try:
                async with asyncio.timeout_at(min(end, next_bookmark)):
                    await changed.wait()
            except TimeoutError:
                continue
    finally:
        forget()


def _line(event: WatchEvent, format_: Format) -> bytes:
    obj = event.object
    if event.type != "ERROR":
        if format_.tables:
            obj = format_.tables.of_event(obj)
        elif format_.metadata_only:
            obj = partial(obj, format_.version)
    return msgspec.json.encode({"type": event.type, "object": obj}) + b"\n"
