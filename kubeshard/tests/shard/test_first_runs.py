"""Which objects count as having arrived at a shard, and the cost of knowing it."""

from __future__ import annotations

import pytest

from kubeshard.cache import Cache, Scope
from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.client import Client, ClusterConfig
from kubeshard.core import Key, KubeObject, ObjectMeta
from kubeshard.listwatch.state_machine import Listed
from kubeshard.runtime.http import HttpTransport
from kubeshard.shard.stale_guard import FirstRuns
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world

A, B, C = Key("x", "a"), Key("x", "b"), Key("y", "c")


class Site(KubeObject, group="example.com", version="v1"):
    pass


class Untouchable:
    @property
    def metadata(self) -> ObjectMeta:
        raise AssertionError("looked at")

    key = metadata


def site(key: Key, version: int) -> Site:
    return Site(
        metadata=ObjectMeta(
            name=key.name, namespace=key.namespace, uid=key.name, resource_version=str(version)
        )
    )


def a_cache() -> Cache:
    world = virtual_world(connect=HttpTransport)
    return Cache(Client(ClusterConfig("http://nowhere"), world=world))


@pytest.mark.regression
@virtual_time
async def test_following_a_filled_cache_takes_no_look_at_any_object() -> None:
    """Visiting each of 50 000 objects would block the event loop for a tenth of a second or more."""
    informer = a_cache().declare(Site)
    await informer.listed(Listed("9"), {A: site(A, 1), C: site(C, 2)}, ALL_NAMESPACES)
    store = informer.store
    store._objects["x"]["a"] = Untouchable()  # type: ignore[assignment]  # that is the point
    first_runs = FirstRuns()
    first_runs.follow(informer)
    assert first_runs.pending(C) == "2"
    with pytest.raises(AssertionError, match="looked at"):
        first_runs.pending(A)


@virtual_time
async def test_what_was_there_at_first_has_arrived_until_a_live_run_or_its_end() -> None:
    informer = a_cache().declare(Site)
    await informer.listed(Listed("9"), {key: site(key, 1) for key in (A, B, C)}, ALL_NAMESPACES)
    informer._stats.full_reads = 1
    first_runs = FirstRuns()
    first_runs.follow(informer)
    informer.drop(site(B, 11), ALL_NAMESPACES)
    assert [first_runs.pending(key) for key in (A, B, C)] == ["1", None, "1"]
    first_runs.settle(A, "1")
    first_runs.settle(C, "0")
    assert [first_runs.pending(key) for key in (A, B, C)] == [None, None, "1"]
    informer.put(site(B, 13), ALL_NAMESPACES)
    assert first_runs.pending(B) == "13"
    assert not first_runs._initial


@virtual_time
async def test_what_two_informers_hold_has_arrived() -> None:
    cache, first_runs = a_cache(), FirstRuns()
    for scope, key in ((Scope(frozenset({"x"})), A), (Scope(), C)):
        informer = cache.declare(Site, scope)
        await informer.listed(Listed("9"), {key: site(key, 1)}, *scope.parts(Site.KIND))
        first_runs.follow(informer)
    assert [first_runs.pending(key) for key in (A, B, C)] == ["1", None, "1"]
