"""The state machine and the store against a model of the server: whatever happens on the wire, the copy converges to
the server's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pytest
from collecting_machine import Advance, CollectingMachine, Drop, Full, Put
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.store import Store
from kubeshard.core.errors import ApiError, Gone, Invalid, Throttled, Timeout, Unavailable
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.listwatch.state_machine import (
    List,
    Listing,
    Opening,
    OpenWatch,
    Pausing,
    Probing,
    SharedKnowledge,
    Streaming,
    Watching,
)


class Thing(KubeObject, version="v1"):
    pass


class Event(NamedTuple):
    type: str
    object: Thing


class Server:
    """Objects that match the selector or not, and the history that a watch with the selector shows."""

    def __init__(self) -> None:
        self.version = 7  # 7 to 1xx: versions of different lengths
        self.objects: dict[str, tuple[Thing, bool]] = {}
        self.history: list[Event] = []
        self.compacted = 7
        self._uids = 0

    def write(self, name: str, selected: bool) -> None:
        self.version += 1
        before = self.objects.get(name)
        if before is None:
            self._uids += 1
        uid = before[0].metadata.uid if before else str(self._uids)
        obj = self._thing(name, uid)
        self.objects[name] = (obj, selected)
        was_selected = before is not None and before[1]
        if selected:
            self.history.append(Event("MODIFIED" if was_selected else "ADDED", obj))
        elif was_selected:
            self.history.append(Event("DELETED", obj))

    def delete(self, name: str) -> None:
        before = self.objects.pop(name, None)
        if before is not None:
            self.version += 1
            if before[1]:
                self.history.append(Event("DELETED", self._thing(name, before[0].metadata.uid)))

    def backup(self) -> Callable[[], None]:
        """Returns a function that restores the present state; everything written after the backup is lost."""
        version, objects, history = self.version, dict(self.objects), list(self.history)

        def restore() -> None:
            self.version, self.objects, self.history = version, dict(objects), list(history)
            self._uids += 1000  # an object that is created again is a different one

        return restore

    def selected(self) -> list[Thing]:
        return [obj for obj, selected in self.objects.values() if selected]

    def after(self, version: str) -> list[Event]:
        return [event for event in self.history if int(event.object.metadata.resource_version) > int(version)]

    def _thing(self, name: str, uid: str) -> Thing:
        return Thing(metadata=ObjectMeta(name=name, uid=uid, resource_version=str(self.version)))


class Wire:
    """Executes the state machine's requests step by step, so that anything can happen between two steps."""

    def __init__(self, server: Server, *, streaming: bool) -> None:
        self.server = server
        self.streaming = streaming
        self.machine = CollectingMachine("", SharedKnowledge(), _NoJitter())
        self.store: Store[Thing] = Store()
        self.told: list[Delta[Thing]] = []
        self.now = 0.0
        self._incoming: Iterator[Event | str] | None = None
        self._live_from = 0

    def step(self) -> None:
        """Delivers one message."""
        self.now += 5.0
        machine = self.machine
        match machine.state:
            case Pausing():
                machine.elapsed()
                self._incoming = None
            case Probing():
                machine.probed(str(self.server.version), self.now)
                self._incoming = None
            case Streaming() if not self.streaming:
                machine.failed(Invalid("unknown option"), self.now)
            case Opening() if int(machine.resource_version) < self.server.compacted:
                machine.failed(Gone("compacted"), self.now)
            case Listing() if self._incoming is None:
                self._incoming = self._existing()
            case Streaming() | Opening() if self._incoming is None:
                machine.opened(self.now)
                initial = isinstance(machine.request, OpenWatch) and machine.request.initial
                self._incoming = self._existing() if initial else iter(())
                if not initial:
                    self._live_from = len(self.server.history) - len(
                        self.server.after(machine.resource_version)
                    )
            case _:
                self._receive()

    def resume(self) -> None:
        """The watch stays open although the server was restored."""
        self._live_from = len(self.server.history)

    def fail(self, error: ApiError, *, in_stream: bool) -> None:
        if isinstance(self.machine.state, Pausing):
            return
        self._incoming = None
        if in_stream and isinstance(self.machine.state, Streaming | Watching):
            self.machine.error_event(error, self.now)
        else:
            self.machine.failed(error, self.now)

    def end(self) -> None:
        if isinstance(self.machine.state, Watching):
            self._incoming = None
            self.machine.ended(self.now)

    def replay(self, count: int) -> None:
        """Delivers messages of the past again."""
        if isinstance(self.machine.state, Watching):
            seen = self.server.history[: self._live_from]
            for event in seen[-count:] if count else ():
                if isinstance(self.machine.state, Watching):
                    self._event(event)

    def bookmark(self) -> None:
        if isinstance(self.machine.state, Watching) and self._live_from == len(self.server.history):
            self._change(self.machine.bookmark(str(self.server.version), self.now, ends_initial_events=False))

    def catch_up(self) -> None:
        while not isinstance(self.machine.state, Watching) or self._live_from < len(self.server.history):
            self.step()

    def _existing(self) -> Iterator[Event | str]:
        """A consistent read: the state at the time of the request, then its version."""
        self._live_from = len(self.server.history)
        snapshot: list[Event | str] = [Event("ADDED", obj) for obj in self.server.selected()]
        return iter([*snapshot, str(self.server.version)])

    def _receive(self) -> None:
        assert self._incoming is not None
        message = next(self._incoming, None)
        match self.machine.request, message:
            case List(), str(version):
                self._incoming = None
                self._change(self.machine.listed(version, self.now))
            case List(), Event(_, obj):
                self.machine.item(obj)
            case OpenWatch(), str(version):
                self._change(self.machine.bookmark(version, self.now, ends_initial_events=True))
            case OpenWatch(), Event() as event:
                self._event(event)
            case _ if self._live_from < len(self.server.history):
                self._live_from += 1
                self._event(self.server.history[self._live_from - 1])

    def _event(self, event: Event) -> None:
        self._change(self.machine.event(event.type, event.object, self.now))

    def _change(self, change: object) -> None:

        match change:
            case Full(entries, version, rewound):
                self.told.extend(self.store.replace(entries, version, rewound=rewound))
            case Put(entry):
                self.told.extend(self.store.apply(entry))
            case Drop(entry):
                self.told.extend(self.store.remove(entry))
            case Advance(version):
                self.store.advance(version)


class _NoJitter:
    def uniform(self, low: float, high: float) -> float:
        return low

    def token(self) -> str:
        return ""


def copy_of(deltas: Iterable[Delta[Thing]]) -> dict[Key, Thing]:
    """Returns the copy that a handler keeps if it trusts its deltas; fails on a lost or duplicate delta."""
    known: dict[Key, Thing] = {}
    newest: dict[Key, int] = {}
    for delta in deltas:
        match delta:
            case Added(obj):
                assert obj.key not in known
                assert int(obj.metadata.resource_version) > newest.get(obj.key, 0)
                known[obj.key] = obj
            case Updated(old, new):
                assert known[old.key] is old
                assert old.metadata.uid == new.metadata.uid
                assert int(old.metadata.resource_version) < int(new.metadata.resource_version)
                known[new.key] = new
            case Deleted(last):
                assert known.pop(last.key).metadata.uid == last.metadata.uid
                newest[last.key] = int(last.metadata.resource_version)
    return known


NAMES = st.sampled_from("abc")
ERRORS = st.sampled_from([Unavailable, Throttled, Timeout, Gone])
ACTIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.booleans()),
    st.tuples(st.just("write"), NAMES, st.just(True)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("fail"), ERRORS, st.booleans()),
    st.tuples(st.just("end")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("replay"), st.integers(0, 5)),
    st.tuples(st.just("bookmark")),
)


@given(st.booleans(), st.lists(ACTIONS, max_size=60))
def test_the_copy_ends_as_the_truth_and_no_delta_is_lost_or_doubled(
    streaming: bool, actions: list[tuple[object, ...]]
) -> None:
    server = Server()
    wire = Wire(server, streaming=streaming)
    for action in actions:
        match action:
            case ("write", str(name), bool(selected)):
                server.write(name, selected)
            case ("delete", str(name)):
                server.delete(name)
            case ("step", int(count)):
                for _ in range(count):
                    wire.step()
            case ("fail", type() as error, bool(in_stream)):
                wire.fail(error("fault"), in_stream=in_stream)
            case ("end",):
                wire.end()
            case ("compact",):
                server.compacted = server.version
            case ("replay", int(count)):
                wire.replay(count)
            case ("bookmark",):
                wire.bookmark()
    wire.catch_up()

    truth = {obj.key: obj for obj in server.selected()}
    assert {obj.key: obj for obj in wire.store.list()} == truth
    assert copy_of(wire.told) == truth


WRITES = st.lists(st.tuples(NAMES, st.booleans()), min_size=1, max_size=6)


@pytest.mark.regression
@given(st.booleans(), WRITES, WRITES, WRITES, st.booleans())
def test_after_a_restore_the_copy_ends_as_the_truth_though_versions_come_again(
    streaming: bool,
    kept: list[tuple[str, bool]],
    lost: list[tuple[str, bool]],
    new: list[tuple[str, bool]],
    watch_goes_on: bool,
) -> None:
    server = Server()
    wire = Wire(server, streaming=streaming)
    for name, selected in kept:
        server.write(name, selected)
    restore = server.backup()
    for name, selected in lost:
        server.write(name, selected)
    wire.catch_up()
    restore()
    wire.resume()
    # A restore can be detected only while the new history is shorter than the lost one.
    for name, selected in new[: len(lost) - 1]:
        server.write(name, selected)
        if watch_goes_on:
            wire.step()
    wire.now += 90.0
    wire.fail(Timeout("silent"), in_stream=False)
    wire.catch_up()

    assert {obj.key: obj for obj in wire.store.list()} == {obj.key: obj for obj in server.selected()}
    assert wire.store.resource_version == wire.machine.resource_version
    assert wire.machine.rewinds == 1
    for name in "abc":
        server.delete(name)
    wire.catch_up()
    assert not wire.store.list()
