"""Faults of lists and watches: they are slow, break off, end at once, repeat themselves, or leave out bookmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubeshard.runtime.transport import HttpRequest, TransportError
from kubeshard_lab.simulation.faults.injection import Injection, Rule, fault_of, lists
from kubeshard_lab.simulation.processes import Process

_BOOKMARK = b'{"type":"BOOKMARK"'
_ENDS_INITIAL_EVENTS = b"k8s.io/initial-events-end"
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
_FROM_VERSION = re.compile(r"[?&]resourceVersion=(\d+)")


def _watches(process: Process, request: HttpRequest) -> bool:
    return request.method == "GET" and "watch=" in request.target


@fault_of("any")
async def lists_slow(on: Injection) -> None:
    """Lists take long, and some longer than anyone waits."""
    slow = Rule("list slow", lists, code=0, delay=on.rng.uniform(1, 25))
    hanging = Rule("list slow", lambda *of: lists(*of) and on.rng.random() < 0.3, code=0, delay=600)
    async with on.happening("list slow"), on.ruled(hanging), on.ruled(slow):
        on.cut_streams(on.workload.live(""))
        on.compact()  # so that watches cannot go on
        await on.lasts(10, 60)


@fault_of("any")
async def lists_reset(on: Injection) -> None:
    """Lists, and watches that begin with all objects, break off in the middle."""

    def reset(process: Process, request: HttpRequest, chunk: bytes) -> Iterator[bytes]:
        if "sendInitialEvents=true" not in request.target or on.rng.random() < 0.3:
            yield chunk
            return
        on.happens("list reset")
        yield chunk[: len(chunk) // 2]
        raise TransportError("connection reset", sent=True)

    async with on.happening("list reset"), on.edited("list reset", reset):
        on.conditions.chances["list reset"] = 0.7
        on.cut_streams(on.workload.live(""))
        on.compact()
        await on.lasts(5, 30)
        on.conditions.chances["list reset"] = 0.0


@fault_of("any")
async def bookmarks_missing(on: Injection) -> None:
    """Watches deliver no bookmarks."""

    def without(process: Process, request: HttpRequest, chunk: bytes) -> Iterator[bytes]:
        if _BOOKMARK in chunk and _watches(process, request) and _ENDS_INITIAL_EVENTS not in chunk:
            lines = chunk.splitlines(keepends=True)
            kept = [line for line in lines if not line.startswith(_BOOKMARK)]
            on.happens("bookmark missing")
            chunk = b"".join(kept)
        if chunk:
            yield chunk

    async with on.happening("bookmark missing"), on.edited("bookmark missing", without):
        await on.lasts(60, 180)


@fault_of("any")
async def events_repeated(on: Injection) -> None:
    """Watches deliver events twice, and deliver the last one again after they were cut."""
    last: dict[tuple[str, str], bytes] = {}

    def twice(process: Process, request: HttpRequest, chunk: bytes) -> Iterator[bytes]:
        if not _watches(process, request) or _ENDS_INITIAL_EVENTS in chunk:
            yield chunk
            return
        watch = process.name, request.target.partition("?")[0] + request.headers.get("Accept", "")
        asked, line = _FROM_VERSION.search(request.target), last.pop(watch, b"")
        version = _VERSION.search(line)
        if asked and version and asked[1].encode() == version[1]:
            on.happens("event repeated")
            yield line
        lines = chunk.splitlines(keepends=True)
        last[watch] = lines[-1]
        for line in lines:
            yield line
            if on.rng.random() < 0.5:
                on.happens("event repeated")
                yield line

    async with on.happening("event repeated"), on.edited("event repeated", twice):
        await on.lasts(5, 30)
        on.cut_streams(on.workload.live(""))
        await on.lasts(5, 30)


@fault_of("any")
async def watches_end(on: Injection) -> None:
    """Watches end as soon as they are open."""
    on.conditions.ending["watch ended"] = _watches
    async with on.happening("watch ended"):
        on.cut_streams(on.workload.live(""))
        await on.lasts(5, 40)
    on.conditions.ending.pop("watch ended", None)
