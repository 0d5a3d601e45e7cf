"""Over random histories one shard at a time works on a bucket, and soon after the last fault each bucket has one."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from range_world import DURATION, World

from kubeshard.sharding.assignment import Assignment, Unreadable

NAMES = ["a", "b", "c", "d", "e"]
MOST = 5


def some(world: World, do: Callable[[str], None]) -> None:
    if world.shards:
        do(world.rng.choice(sorted(world.shards)))


def again(world: World, weight: Fraction = Fraction(1)) -> None:
    """A shard begins, under a name that was there before, as those of StatefulSets do."""
    world.join(world.rng.choice(NAMES), weight)


def another(world: World, weight: Fraction = Fraction(1)) -> None:
    """A shard begins under a name of its own, as those of Deployments do."""
    if len(world.shards) < MOST:
        world.join(f"pod-{len(world.leases)}", weight)


def both(world: World) -> None:
    some(world, world.crash)
    another(world)


def new_leader(world: World) -> None:
    """For a moment, there are two."""
    world.lead()
    world.after(world.rng.uniform(0, 2), world.lose_leader)


def delete(world: World) -> None:
    if world.data is not None:
        world.write(None)


def restore(world: World) -> None:
    if world.former:
        world.write(world.rng.choice(world.former))


def silence(world: World) -> None:
    """The watches of the assignment deliver nothing for a while."""
    world.silence(world.rng.uniform(3, 60))


def cut(world: World) -> None:
    if world.data:
        rest = dict(world.data)
        del rest[world.rng.choice(sorted(rest))]
        world.write(rest)


def edit(world: World) -> None:
    """Another owner or target, at the same or a lower epoch."""
    try:
        assignment = Assignment.parse(world.data)
    except Unreadable:
        return
    group = world.rng.choice(assignment.groups)
    owner, target = world.rng.sample([*sorted(world.leases), "x", "y"], 2)
    place = group.place._replace(
        owner=owner,
        target=world.rng.choice(["", target]),
        epoch=world.rng.randint(0, group.place.epoch),
    )
    world.write({**(world.data or {}), world.buckets.key(group.run): str(place)})


Fault = Callable[[World], None]

MEMBERSHIP: list[Fault] = [
    another,
    another,
    lambda world: another(world, Fraction(world.rng.choice([0, 2]))),
    lambda world: some(world, world.leave),
    lambda world: some(world, world.crash),
    both,
    new_leader,
]
BEGUN_AGAIN: list[Fault] = [again, again, lambda world: again(world, Fraction(0)), *MEMBERSHIP[3:]]
OBJECT: list[Fault] = [delete, restore, cut, edit]


def once_all_is_said(do: Fault) -> Fault:
    """When shards have renewed their Leases: one that begins has only these to compare the assignment with."""

    def fault(world: World) -> None:
        for _ in range(20):
            if all(shard.has_said for shard in world.shards.values()):
                do(world)
                return
            world.run(0.5)

    return fault


BEGUN_BESIDE_EDITS = [*BEGUN_AGAIN, *map(once_all_is_said, OBJECT)]
RESTORED_UNSEEN = [*MEMBERSHIP, restore, silence]


def history(seed: int, faults: list[Fault], number: int) -> World:
    world = World(seed)
    world.lead()
    for _ in range(number):
        world.rng.choice(faults)(world)
        world.run(world.rng.choice([0.0, 0.1, 1.0, 5.0, 15.0]))
    world.run(30.0)  # the last late message has arrived
    if not any(shard.weight for shard in world.shards.values()):
        another(world)
    world.run(4 * DURATION + 30.0)
    return world


def check(world: World) -> None:
    assert not world.doubled, world.doubled[:3]
    assert not world.unowned, (world.unowned, world.data)
    counts = world.counts
    weights = {shard.name: shard.weight for shard in world.shards.values()}
    for shard, weight in weights.items():
        assert abs(counts[shard] - world.buckets.count * weight / sum(weights.values())) < 1, (
            counts,
            weights,
        )


QUICK = range(10)
NIGHTLY = range(10, 200)


@pytest.mark.parametrize("seed", QUICK)
def test_shards_of_a_deployment_come_and_go(seed: int) -> None:
    check(history(seed, MEMBERSHIP, 30))


@pytest.mark.parametrize("seed", QUICK)
def test_shards_begin_again_under_their_names(seed: int) -> None:
    check(history(seed, BEGUN_AGAIN, 30))


@pytest.mark.parametrize("seed", QUICK)
def test_somebody_deletes_restores_and_edits_the_assignment(seed: int) -> None:
    check(history(seed, MEMBERSHIP + OBJECT, 30))


@pytest.mark.parametrize("seed", [89, 95, 143])  # those of the first 150 in which it makes a difference
def test_a_shard_that_begins_again_believes_no_assignment_that_somebody_has_edited_or_restored(
    seed: int,
) -> None:
    check(history(seed, BEGUN_BESIDE_EDITS, 30))


@pytest.mark.parametrize("seed", [215, 507])  # of the first 600, the former shows it
def test_a_shard_takes_over_nothing_that_another_works_on_if_the_assignment_was_restored_while_it_heard_nothing(
    seed: int,
) -> None:
    check(history(seed, RESTORED_UNSEEN, 30))


@pytest.mark.regression
@pytest.mark.parametrize("seed", [83, 628, 968, 1146])
def test_a_new_coordinator_does_not_take_a_deleted_assignment_for_one_that_never_was(seed: int) -> None:
    """No shard has said yet what it got: the only one has just begun again, or the assignment was the first one."""
    check(history(seed, [*BEGUN_AGAIN, delete, cut], 30))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "faults",
    [
        MEMBERSHIP,
        BEGUN_AGAIN,
        MEMBERSHIP + OBJECT,
        [*BEGUN_AGAIN, delete, cut],
        BEGUN_BESIDE_EDITS,
        RESTORED_UNSEEN,
    ],
    ids=["new", "again", "object", "deleted", "begun beside edits", "restored unseen"],
)
def test_many_histories(faults: list[Fault]) -> None:
    for seed in NIGHTLY:
        check(history(seed, faults, 30))
