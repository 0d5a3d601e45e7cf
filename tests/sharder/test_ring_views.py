"""Rings as webhook, resync and watch see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from small_api import SmallApi

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
    cache: Any = SimpleNamespace(get=lambda _, name: rings.get(name), list=lambda *_, **__: [])
    views = RingViews(
        cache,
        LeaseObserver(client, clock=clock),
        ResourceKinds(client),
        RingReports(),
        default_selector=LabelSelector(),
        clock=clock,
    )
    assert views.view("a" * 63) is not None
    assert views.ring("b" * 64) is None
    assert views.view("b" * 64) is None
