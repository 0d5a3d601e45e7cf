"""A few minutes of the swarm: one shard at a time works on an object, and in the end every object has an owner."""

import pytest
from tiers import further

from kubeshard.controller.in_flight import InFlight
from kubeshard.core import GroupKind, Key
from kubeshard.simulation import swarm

pytestmark = pytest.mark.regression


@pytest.mark.parametrize("seed", [1, *further(2, 3)])
def test_one_shard_at_a_time_works_on_an_object_and_all_are_owned_after_random_faults(seed: int) -> None:
    outcome = swarm.run(seed, minutes=3, count=20)
    assert outcome.counts["writes"] > 50
    assert outcome.breaks == []


@pytest.mark.parametrize("sharder", ["in-manager", "both"])
@pytest.mark.parametrize("seed", [1, *further(2)])
def test_the_same_holds_where_an_elected_shard_is_the_sharder(seed: int, sharder: str) -> None:
    outcome = swarm.run(seed, minutes=3, count=20, sharder=sharder)
    assert outcome.counts["writes"] > 50
    assert outcome.breaks == []


def test_the_swarm_sees_it_when_objects_are_handed_over_while_somebody_works_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(self: InFlight, kind: GroupKind, key: Key) -> None:
        pass

    monkeypatch.setattr(InFlight, "idle", at_once)
    outcome = swarm.run(4, minutes=2, kinds=["scale", "drain", "kill"], count=20)
    assert [line for line in outcome.breaks if "work on" in line]
