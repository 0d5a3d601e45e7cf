"""A few minutes of the swarm: one shard at a time works on an object, and everything is owned in the end."""

import pytest
import swarm

pytestmark = pytest.mark.regression


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_shard_at_a_time_works_on_an_object_and_all_are_owned_after_random_faults(seed: int) -> None:
    outcome = swarm.run(seed, minutes=3, count=20)
    assert outcome.counts["writes"] > 50
    assert outcome.breaks == []
