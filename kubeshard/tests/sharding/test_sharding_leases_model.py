"""Leases that come, go, flap and change rings at random: invariants of the shard states."""

from __future__ import annotations

import random

import pytest

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.sharding.names import RING_LABEL
from kubeshard.sharding.shard_states import ShardStates

RINGS = ("one", "two")
DURATION = 15


def _lease(name: str, ring: str, version: int, uid: int, *, held: bool) -> Lease:
    meta = ObjectMeta(
        name=name, namespace="ns", uid=str(uid), resource_version=str(version), labels={RING_LABEL: ring}
    )
    return Lease(
        metadata=meta,
        spec=LeaseSpec(
            holder_identity=name if held else "",
            lease_duration_seconds=DURATION if held else 1,
            acquire_time="a",
            renew_time=str(version),
        ),
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_shard_that_renewed_and_did_not_release_stays_for_twice_its_duration_whatever_happens(
    seed: int,
) -> None:
    """This holds even if its Lease is deleted, re-created, or moved to another ring and back."""
    draw = random.Random(seed)
    states, now = ShardStates(), 0.0
    renewed: dict[tuple[str, str], float] = {}
    last: dict[str, Lease] = {}
    for version in range(1, 300):
        now += draw.choice([0.0, 0.5, 2.0, 5.0, 16.0])
        name, ring = draw.choice("abc"), draw.choice(["one", "one", "one", "two"])
        match draw.choice(["renew", "renew", "release", "delete", "echo"]):
            case "renew":
                last[name] = _lease(name, ring, version, draw.randint(0, 2), held=True)
                states.observe(last[name], now)
                renewed[ring, name] = now
            case "release":
                last[name] = _lease(name, ring, version, 0, held=False)
                states.observe(last[name], now)
                renewed.pop((ring, name), None)
            case "delete":
                states.forget(Key("ns", name), now, str(version))
            case "echo" if name in last:
                before = [states.available(each, now) for each in RINGS]
                states.observe(last[name], now)
                assert [states.available(each, now) for each in RINGS] == before
        for each in RINGS:
            available = states.available(each, now)
            assert set(available) == {s.name for s in states.shards(each, now) if s.state.available}
            for (of, shard), at in renewed.items():
                if of == each and now - at < 2 * DURATION:
                    assert shard in available
                    assert states.may_live(each, shard, now)
