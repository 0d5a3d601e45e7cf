"""Shard processes in odd surroundings. The other rows of `docs/guarantees.md` are tested next to the code that they are
about.
"""

from __future__ import annotations

import msgspec
import pytest

from kubeshard.core.builtin import ConfigMap, Lease
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.times import parse_time
from kubeshard.shard.identity import Incarnation, ShardIdentity
from kubeshard.shard.shard_lease import ShardClaim, Takeover
from kubeshard.shard.timing import LeaseTiming
from kubeshard.sharding.shard_states import ShardStates

ME = ShardIdentity("ring", "a", "ns", Incarnation("", "", "x"))


@pytest.mark.parametrize("wall", [0.0, 1.5, 946_684_800.0, 4_070_908_800.0])
def test_a_shard_whose_clock_is_wrong_by_decades_holds_its_lease(wall: float) -> None:
    """The times in its Lease are well-formed, and only the fact that they change matters."""
    states, claim = ShardStates(), ShardClaim(ME, LeaseTiming(), Takeover.AFTER_RECORD)
    lease = Lease()
    for second in range(0, 60, 2):
        lease = claim.renewed_lease(lease, wall + second)
        assert parse_time(lease.spec.renew_time) == wall + second
        lease = msgspec.structs.replace(
            lease, metadata=msgspec.structs.replace(lease.metadata, resource_version=str(second + 1), uid="u")
        )
        states.observe(lease, 1000.0 + second)
    assert str(states.shard(Key("ns", "a"), 1060.0).state) == "ready"  # type: ignore[union-attr]  # it was observed
    gone = claim.released(lease, wall)
    assert gone.spec.renew_time is not None
    assert gone.spec.renew_time.endswith(".500000Z" if wall == 1.5 else ".000000Z")


def test_fields_of_a_cached_object_cannot_be_set() -> None:
    obj = ConfigMap(metadata=ObjectMeta(name="a"))
    with pytest.raises(AttributeError):
        obj.metadata.name = "b"  # type: ignore[misc]  # the point of the test
    with pytest.raises(AttributeError):
        obj.metadata = ObjectMeta()  # type: ignore[misc]  # the point of the test
