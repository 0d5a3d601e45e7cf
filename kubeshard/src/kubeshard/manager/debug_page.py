"""Shows the snapshot of a process as a page, and as text on a terminal.

    GET /debug                on the health port, as text
    GET /debug?format=json    the same as JSON
    kill -USR1 PID            the same text, on standard error (`kubeshard.manager.run`)

By default the page is only served on the loopback interface: in a pod, use `kubectl port-forward`, or a shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Literal
from urllib.parse import parse_qs

import msgspec

from kubeshard.manager.debug import ControllerView, DebugSnapshot, InformerView, KeyView
from kubeshard.manager.http import Page, Request, Route

DebugAccess = Literal["loopback", "everywhere", "off"]
"""The clients that may read the page."""


def debug_page(snapshot: Callable[[], DebugSnapshot], access: DebugAccess) -> Route:
    def page(request: Request) -> Page | None:
        if request.path.removesuffix("/") != "/debug" or access == "off":
            return None
        if access == "loopback" and not _is_loopback(request.host):
            return Page(403, "debug is served on the loopback interface only: use kubectl port-forward\n")
        form = parse_qs(request.query).get("format", ["text"])[-1]
        match form:
            case "json":
                return Page(200, msgspec.json.encode(snapshot()), "application/json")
            case "text":
                return Page(200, as_text(snapshot()))
            case _:
                return Page(400, f"unknown format {form!r}: use text or json\n")

    return page


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def as_text(snapshot: DebugSnapshot) -> str:
    return "\n".join(_lines(snapshot)) + "\n"


def _lines(snapshot: DebugSnapshot) -> Iterator[str]:
    yield (
        f"event loop: {snapshot.loop_late:.3f} s late now, "
        f"at most {snapshot.loop_latest:.3f} s within the last minute"
    )
    if snapshot.shard:
        yield snapshot.shard
    for controller in snapshot.controllers:
        yield ""
        yield from _controller(controller)
    if snapshot.clusters:
        yield ""
        yield "clusters"
        yield from _table(
            ("NAME", "SERVER", "STATE"),
            [
                (each.name, each.server, ", ".join(filter(None, (each.state, each.error))))
                for each in snapshot.clusters
            ],
        )
    yield ""
    yield "informers"
    yield from _table(
        ("KIND", "SCOPE", "OBJECTS", "JSON", "HEARD", "STATE"),
        [
            (
                each.kind,
                each.scope,
                str(each.objects),
                _bytes(each.json_bytes),
                "never" if each.heard is None else f"{each.heard:.1f} s ago",
                _state(each),
            )
            for each in snapshot.informers
        ],
    )
    if snapshot.unfenced_writes:
        yield ""
        yield "writes without proof of ownership (unfenced=True)"
        yield from _table(("COUNT", "KIND"), [(str(n), kind) for kind, n in snapshot.unfenced_writes.items()])
    yield ""
    yield "tasks"
    yield from _table(
        ("COUNT", "NAME", "WAITS IN"), [(str(each.count), each.name, each.where) for each in snapshot.tasks]
    )


def _controller(controller: ControllerView) -> Iterator[str]:
    queue = controller.queue
    yield f"controller {controller.name} ({controller.kind})"
    for kind, cause in controller.waits_for.items():
        yield f"  waits for {kind}: {cause}"
    yield f"  running: {len(queue.running)}, with {_count(controller.workers, 'worker')}"
    for run in queue.running:
        overdue = "  OVERDUE" if run.seconds > controller.timeout else ""
        yield f"    {run.object}  for {run.seconds:.1f} s{overdue}{_because(run.why)}"
    yield f"  ready: {queue.ready}"
    yield from _keys(queue.waiting, "for", queue.ready)
    yield f"  delayed: {queue.delayed}; failing: {queue.failing}"
    yield from _keys(queue.delays, "in", queue.delayed)


def _keys(shown: Sequence[KeyView], how: str, count: int) -> Iterator[str]:
    for each in shown:
        yield f"    {each.object}  {how} {each.seconds:.1f} s{_because(each.why)}"
    if count > len(shown) > 0:
        yield f"    and {count - len(shown)} more"


def _because(reasons: Sequence[str]) -> str:
    return f"  because {'; '.join(reasons)}" if reasons else ""


def _state(informer: InformerView) -> str:
    parts = ["live" if informer.synced else "not filled"]
    if informer.undecodable:
        parts.append(f"{informer.undecodable} do not fit their class")
    if informer.error:
        parts.append(informer.error)
    return ", ".join(parts)


def _bytes(number: int) -> str:
    return f"{number} B" if number < 10_000 else f"{number / 1024:.0f} KiB"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()
