"""Rings as webhook, resync and watch see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from small_api import SmallApi

from kubeshard.cache.deltas import Updated
from kubeshard.core.builtin import Namespace
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.reports import RingReports
from kubeshard.sharder.views import RingViews
from kubeshard.sharding import ControllerRing
from kubeshard.testing.virtual_time import VirtualClock


async def test_a_ring_whose_name_fits_into_no_label_key_is_left_alone() -> None:
    clock = VirtualClock()
    client = SmallApi().client(clock)
    rings = {name: ControllerRing(metadata=ObjectMeta(name=name, uid=name)) for name in ("a" * 63, "b" * 64)}
    store = SimpleNamespace(get=lambda key: rings.get(key.name))
    informer = SimpleNamespace(add_handler=lambda _: None, store=store)
    cache: Any = SimpleNamespace(declare=lambda _: informer, get=lambda *_: None)
    views = RingViews(
        cache,
        LeaseObserver(client, clock=clock),
        ResourceKinds(client),
        RingReports(),
        default_selector=LabelSelector(),
        clock=clock,
    )
    views.declare()
    assert views.view("a" * 63) is not None
    assert views.ring("b" * 64) is None
    assert views.view("b" * 64) is None


async def test_a_view_is_the_same_object_until_what_it_is_made_of_changes() -> None:
    """Whoever holds a view may compare it with the present one to learn whether its decisions stand."""
    clock = VirtualClock()
    ring = ControllerRing(metadata=ObjectMeta(name="ring", uid="u"))
    spaces = {"team": Namespace(metadata=ObjectMeta(name="team", labels={"team": "yes"}))}
    handlers: dict[Any, Any] = {}
    cache: Any = SimpleNamespace(
        get=lambda _, name: spaces.get(name),
        declare=lambda kind: SimpleNamespace(
            add_handler=lambda handler: handlers.update({kind: handler}),
            store=SimpleNamespace(get=lambda key: ring if kind is ControllerRing else spaces.get(key.name)),
        ),
    )
    views = RingViews(
        cache,
        LeaseObserver(SmallApi().client(clock), clock=clock),
        ResourceKinds(SmallApi().client(clock)),
        RingReports(),
        default_selector=LabelSelector(match_labels={"team": "yes"}),
        clock=clock,
    )
    views.declare()
    first = views.view("ring")
    assert first is not None
    assert first.selects("team")
    assert views.view("ring") is first

    old = spaces["team"]
    renewed = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, resource_version="2")
    )
    handlers[Namespace](Updated(old, renewed))
    assert views.view("ring") is first

    left = msgspec.structs.replace(old, metadata=ObjectMeta(name="team"))
    spaces["team"] = left
    handlers[Namespace](Updated(renewed, left))
    second = views.view("ring")
    assert second is not None
    assert second is not first
    assert not second.selects("team")

    handlers[ControllerRing](Updated(ring, ring))
    assert views.view("ring") is not second
