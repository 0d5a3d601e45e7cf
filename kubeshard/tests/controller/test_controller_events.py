"""The event recorder on virtual time, against an API server that fails as scripted."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.controller.events import Event, EventRecorder, ObjectReference, reference_to
from kubeshard.core import (
    AlreadyExists,
    ConfigMap,
    Forbidden,
    Kind,
    MergePatch,
    Namespace,
    NotFound,
    ObjectMeta,
    Throttled,
    Unavailable,
    metadata_only,
)
from kubeshard.core.encoding import encode
from kubeshard.core.names import is_dns_subdomain, is_label_key
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time

CONFIG = ConfigMap(metadata=ObjectMeta(name="config", namespace="ns", uid="u1", resource_version="5"))


class ApiServer:
    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.requests = 0
        self.error: Exception | None = None
        self.hangs = False
        self.full = ""
        """The namespace of which the server takes no more events."""

    async def create(self, event: Event, /) -> Event:
        await self._request()
        if event.metadata.namespace == self.full:
            raise Throttled("limit reached on type Namespace", code=429)
        if event.metadata.name in self.events:
            raise AlreadyExists("exists")
        self.events[event.metadata.name] = event
        return event

    async def patch(self, target: type[Event], name: str, namespace: str, patch: MergePatch, /) -> Event:
        await self._request()
        if name not in self.events:
            raise NotFound("expired")
        self.series: dict[str, Any] = patch.body["series"]
        return self.events[name]

    async def _request(self) -> None:
        self.requests += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error:
            raise self.error


def new_recorder(server: ApiServer) -> EventRecorder:
    return EventRecorder(server, "website-controller", "host-1", clock=VirtualClock())


@virtual_time
async def test_an_event_names_object_reporter_and_time() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    async with recorder.running():
        recorder.event(CONFIG, "Normal", "Created", "made it", action="Create", related=CONFIG)
    (event,) = server.events.values()
    about = ObjectReference(api_version="v1", kind="ConfigMap", namespace="ns", name="config", uid="u1")
    assert (event.regarding, event.related) == (about, about)
    assert (event.type, event.reason, event.action, event.note) == ("Normal", "Created", "Create", "made it")
    assert event.reporting_controller == "website-controller"
    assert event.reporting_instance == "website-controller-host-1"
    assert event.event_time == "2026-01-01T00:00:00.000000Z"
    assert event.metadata.namespace == "ns"
    assert event.metadata.name.startswith("config.")


@virtual_time
async def test_events_of_cluster_scoped_objects_are_in_the_default_namespace() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    async with recorder.running():
        recorder.event(Namespace(metadata=ObjectMeta(name="x")), "Normal", "R", "m")
    (event,) = server.events.values()
    assert event.metadata.namespace == "default"
    assert event.regarding is not None
    assert event.regarding.namespace == ""


@virtual_time
async def test_texts_are_cut_to_what_the_api_server_accepts() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    long = ConfigMap(metadata=ObjectMeta(name="a." * 120 + "b" * 13, namespace="ns"))
    async with recorder.running():
        recorder.event(long, "Normal", "R" * 500, "ü" * 5000, action="A" * 500)
    (event,) = server.events.values()
    assert len(event.note.encode()) <= 1024
    assert (len(event.reason), len(event.action), len(event.reporting_instance) <= 128) == (128, 128, True)
    assert is_dns_subdomain(event.metadata.name)


@virtual_time
async def test_the_name_of_a_controller_is_cut_to_what_the_api_server_accepts() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    async with recorder.running():
        for name in ("x" * 63, "x" * 62):  # the longest names of controllers
            recorder.reporting_as(f"{name}-controller").event(CONFIG, "Normal", "R", "m")
    one, other = (event.reporting_controller for event in server.events.values())
    assert is_label_key(one)
    assert is_label_key(other)
    assert one != other


@virtual_time
async def test_events_of_one_moment_have_different_names() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    async with recorder.running():
        for number in range(20):
            recorder.event(CONFIG, "Normal", f"R{number}", "m")
    assert len(server.events) == 20


@virtual_time
async def test_repeated_events_become_one_with_a_count() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    async with recorder.running():
        for number in range(100):
            recorder.event(CONFIG, "Warning", "Failed", f"try {number}")
            await asyncio.sleep(1)
        assert (len(server.events), server.series["count"]) == (1, 2)
    assert server.series["count"] == 100


@virtual_time
async def test_a_series_whose_event_expired_is_created_again() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    async with recorder.running():
        recorder.event(CONFIG, "Warning", "Failed", "m")
        await settle()
        server.events.clear()
        recorder.event(CONFIG, "Warning", "Failed", "m")
        await settle()
    (event,) = server.events.values()
    assert event.series is not None
    assert event.series.count == 2


@virtual_time
async def test_recording_never_raises_into_the_reconcile() -> None:
    recorder = new_recorder(ApiServer())
    recorder.event(None, "Normal", "R", "m")  # type: ignore[arg-type]  # a mistake
    assert recorder.failed == 1


@virtual_time
async def test_recording_never_waits_and_the_queue_is_bounded() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    for number in range(3000):
        recorder.event(ObjectReference(name=f"o{number}", namespace="ns"), "Normal", "R", "m")
    assert recorder.dropped == 2000
    async with recorder.running():
        pass
    assert len(server.events) == 1000


@virtual_time
async def test_an_outage_is_waited_out() -> None:
    server = ApiServer()
    server.error = Unavailable("down")
    recorder = new_recorder(server)
    async with recorder.running():
        recorder.event(CONFIG, "Normal", "R", "m")
        await asyncio.sleep(35)
        assert server.requests == 4
        server.error = None
        await asyncio.sleep(10)
        assert len(server.events) == 1
    assert recorder.failed == 0


@virtual_time
async def test_an_event_is_tried_twelve_times() -> None:
    server = ApiServer()
    server.error = Unavailable("down")
    recorder = new_recorder(server)
    async with recorder.running():
        recorder.event(CONFIG, "Normal", "R", "m")
        await asyncio.sleep(1000)
    assert (server.requests, recorder.failed) == (12, 1)


@virtual_time
async def test_a_refused_event_is_not_tried_again() -> None:
    server = ApiServer()
    server.error = Forbidden("namespace is being terminated", code=403)
    recorder = new_recorder(server)
    async with recorder.running():
        recorder.event(CONFIG, "Normal", "R", "m")
        await asyncio.sleep(1000)
    assert (server.requests, recorder.failed) == (2, 1)  # once in each group that has Events


@virtual_time
async def test_a_namespace_of_which_the_server_takes_no_more_events_holds_up_no_other() -> None:
    """As with EventRateLimit, which says nothing of when to come back: kubernetes/community#945."""
    server = ApiServer()
    server.full = "ns"
    recorder = new_recorder(server)
    elsewhere = ConfigMap(metadata=ObjectMeta(name="config", namespace="elsewhere"))
    async with recorder.running():
        recorder.event(CONFIG, "Normal", "R", "m")
        recorder.event(elsewhere, "Normal", "R", "m")
        await settle()
        assert [event.metadata.namespace for event in server.events.values()] == ["elsewhere"]
    assert recorder.failed == 1


@virtual_time
async def test_that_a_namespace_takes_no_more_events_is_logged_every_ten_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = ApiServer()
    server.full = "ns"
    recorder = new_recorder(server)
    async with recorder.running():
        for number in range(22):
            recorder.event(CONFIG, "Normal", f"R{number}", "m")
            await asyncio.sleep(60)
    assert recorder.failed == 22
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 3


@virtual_time
async def test_a_lost_answer_does_not_make_a_second_event() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    async with recorder.running():
        server.error = Unavailable("answer lost")
        recorder.event(CONFIG, "Normal", "R", "m")
        await settle()
        write = recorder._outbox._waiting[0]
        server.events[write.event.metadata.name] = write.event
        server.error = None
        await asyncio.sleep(20)
    assert (len(server.events), recorder.failed) == (1, 0)


@virtual_time
async def test_leaving_sends_what_is_left_but_not_for_ever() -> None:
    server, clock = ApiServer(), VirtualClock()
    recorder = new_recorder(server)
    async with recorder.running():
        for number in range(10):
            recorder.event(CONFIG, "Normal", f"R{number}", "m")
    assert len(server.events) == 10
    server.hangs = True
    began = clock.monotonic()
    async with recorder.running():
        recorder.event(CONFIG, "Normal", "Last", "m")
        await asyncio.sleep(1)
    assert clock.monotonic() - began == 6
    assert recorder.dropped == 1


@virtual_time
async def test_each_controller_speaks_in_its_own_name_through_one_queue() -> None:
    server = ApiServer()
    recorder = new_recorder(server)
    async with recorder.running():
        recorder.reporting_as("theme-controller").event(CONFIG, "Normal", "R", "m")
        recorder.event(CONFIG, "Normal", "R", "m")
    reporters = sorted(event.reporting_controller for event in server.events.values())
    assert reporters == ["theme-controller", "website-controller"]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (CONFIG, ("v1", "ConfigMap")),
        (metadata_only(Kind("apps", "v1", "Deployment", "deployments")).type(), ("apps/v1", "Deployment")),
        (ObjectReference(api_version="g/v1", kind="K"), ("g/v1", "K")),
    ],
)
def test_references_name_the_kind_of_the_object(obj: Any, expected: tuple[str, str]) -> None:
    reference = reference_to(obj)
    assert (reference.api_version, reference.kind) == expected


class CoreOnly(ApiServer):
    """A server whose RBAC rules know only the core group."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[str] = []

    async def create(self, event: Any, /) -> Any:
        self.groups.append(event.KIND.group)
        if event.KIND.group:
            raise Forbidden("events.events.k8s.io is forbidden")
        return await super().create(event)

    async def patch(self, target: Any, name: str, namespace: str, patch: MergePatch, /) -> Any:
        self.groups.append(target.KIND.group)
        if target.KIND.group:
            raise Forbidden("events.events.k8s.io is forbidden")
        return await super().patch(target, name, namespace, patch)


@pytest.mark.regression
@virtual_time
async def test_events_go_to_the_core_group_where_the_newer_one_is_forbidden() -> None:
    server = CoreOnly()
    recorder = new_recorder(server)
    async with recorder.running():
        recorder.event(CONFIG, "Warning", "Failed", "m", action="Create")
        await settle()
        recorder.event(CONFIG, "Warning", "Failed", "m", action="Create")
        recorder.event(CONFIG, "Normal", "Mended", "m")
        await settle()
    first, second = (json.loads(encode(event)) for event in server.events.values())
    assert (first["kind"], first["apiVersion"]) == ("Event", "v1")
    assert (first["reason"], first["message"], first["reportingComponent"]) == (
        "Failed",
        "m",
        "website-controller",
    )
    assert first["involvedObject"]["name"] == "config"
    assert second["reason"] == "Mended"
    assert server.series["count"] == 2
    assert server.groups == ["events.k8s.io", "", "", ""]
    assert recorder.failed == 0


@given(st.text(st.characters(exclude_characters="/%"), min_size=1, max_size=253))
def test_an_event_about_an_object_of_any_name_has_a_valid_name_of_its_own(name: str) -> None:
    """Roles, for example, are named `system:discovery`."""
    recorder = EventRecorder(ApiServer(), "manager", "host", clock=REAL_WORLD.clock)._outbox
    about = reference_to(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    names = [recorder.name(about, 1.0e9) for _ in range(2)]
    assert all(is_dns_subdomain(each) for each in names)
    assert names[0] != names[1]
