"""Shares are even, what is where it may stay stays, and a selector stays short, whatever joined and left before."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations, groupby
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.shares import MOST_RUNS, divide, due, weight_of

Weights = Mapping[str, Fraction]

ALIKE = st.integers(1, 500).map(lambda shards: {f"s{n}": Fraction(1) for n in range(shards)})
WEIGHTS = st.lists(
    st.sampled_from(["0", "0.1", "1", "1", "1", "2", "7.5", "100"]), min_size=1, max_size=500
).map(lambda texts: {f"s{n}": Fraction(text) for n, text in enumerate(texts)})


def exact(count: int, weights: Weights) -> dict[str, Fraction]:
    total = sum(weights.values())
    return {shard: count * weight / total for shard, weight in weights.items()}


def most_runs(owners: Sequence[str]) -> int:
    return max(Counter(owner for owner, _ in groupby(owners)).values())


def moves(before: Sequence[str], after: Sequence[str]) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


def fewest_moves(present: Sequence[str], weights: Weights) -> int:
    """What nobody has, or more than a shard's ceiling, must move. Of the rest, each shard that has a ceiling without
    being due one exactly takes one bucket less away from another.
    """
    have = Counter(owner if owner in weights else "" for owner in present)
    dues = exact(len(present), weights)
    floors = {shard: int(share) for shard, share in dues.items()}
    extra = len(present) - sum(floors.values())
    keeps = sum(have[s] > floors[s] and dues[s] > floors[s] for s in weights)
    surplus = sum(max(0, have[shard] - floors[shard]) for shard in weights)
    return have[""] + surplus - min(extra, keeps)


def is_even(owners: Sequence[str], weights: Weights) -> bool:
    have = Counter(owners)
    return (
        all(
            share.__floor__() <= have[shard] <= share.__ceil__()
            for shard, share in exact(len(owners), weights).items()
        )
        and have.keys() <= weights.keys()
    )


@pytest.mark.long
@given(ALIKE | WEIGHTS, ALIKE | WEIGHTS)
def test_each_shard_has_the_floor_or_the_ceiling_of_its_share_and_the_fewest_buckets_move(
    first: Weights, then: Weights
) -> None:
    present = [""] * 1024
    for weights in first, then:
        if not any(weights.values()):
            weights = {**weights, "s0": Fraction(1)}
        after = divide(present, weights)
        assert is_even(after, weights)
        assert most_runs(after) <= MOST_RUNS
        assert moves(present, after) == fewest_moves(present, weights)
        assert divide(after, weights) == after
        present = after


@given(
    st.lists(st.sampled_from(["", "a", "b", "c", "gone"]), min_size=1, max_size=9),
    st.fixed_dictionaries(
        dict.fromkeys("abc", st.sampled_from([Fraction(0), Fraction(1), Fraction(3)]))
    ).filter(lambda weights: any(weights.values())),
)
def test_no_other_even_division_of_a_few_buckets_moves_fewer(present: list[str], weights: Weights) -> None:
    have, count = Counter(present), len(present)
    possible = []
    for ends in combinations(range(count + 2), 2):
        numbers = dict(zip("abc", (ends[0], ends[1] - ends[0] - 1, count + 1 - ends[1]), strict=True))
        if is_even([shard for shard in numbers for _ in range(numbers[shard])], weights):
            possible.append(sum(max(0, numbers[shard] - have[shard]) for shard in numbers))
    assert moves(present, divide(present, weights)) == min(possible)


@pytest.mark.parametrize("present", [["", ""], ["a", "b"], ["gone", "a"]])
def test_without_any_weight_nobody_gets_anything(present: list[str]) -> None:
    assert divide(present, {"a": 0, "b": 0}) == divide(present, {}) == ["", ""]


def test_a_shard_of_weight_0_gives_up_what_it_has() -> None:
    assert divide(["a"] * 512 + ["b"] * 512, {"a": 1, "b": 0}) == ["a"] * 1024


def test_the_largest_share_is_close_to_the_even_one() -> None:
    for shards, largest in (3, 1.01), (5, 1.01), (10, 1.02), (50, 1.18):
        counts = Counter(divide([""] * 1024, {f"s{n}": 1 for n in range(shards)}))
        assert max(counts.values()) / (1024 / shards) <= largest


@pytest.mark.parametrize(("owners", "shards"), [(2, 2), (10, 10), (30, 20), (60, 61)])
def test_buckets_that_somebody_has_scattered_come_into_few_runs_again(owners: int, shards: int) -> None:
    rng = random.Random(owners)
    weights = {f"s{n}": Fraction(1) for n in range(shards)}
    after = divide([f"s{rng.randrange(owners)}" for _ in range(1024)], weights)
    assert is_even(after, weights)
    assert most_runs(after) <= MOST_RUNS


def test_a_selector_of_the_most_runs_is_no_longer_than_4_kb_in_a_url() -> None:
    buckets = Buckets(1024, "namespace")
    selector = str(buckets.ranges(range(1, 2 * MOST_RUNS + 1, 2)))
    assert selector.count("||") == MOST_RUNS - 1
    assert len(quote(selector, safe="")) <= 4096


def history(seed: int, count: int, steps: int) -> tuple[int, int, int]:
    """Shards join and leave, several at once, others in place of them. How many buckets moved, at least had to, and the
    most runs of a shard.
    """
    rng, names, present = random.Random(seed), list[str](), [""] * count
    moved = least = runs = created = 0
    most = rng.choice([3, 5, 10, 20, 30, 40, 60])
    for _ in range(steps):
        some = rng.choice([1, 1, 1, 2, 5])
        leaves = names and (len(names) >= most or rng.random() < 0.5)
        if leaves:
            for name in rng.sample(names, min(some, len(names))):
                names.remove(name)
        if not leaves or rng.random() < 0.5:
            names += [f"s{created + n}" for n in range(some)]
            created += some
        weights = {name: Fraction(1) for name in names}
        if not weights:
            continue
        after = divide(present, weights)
        assert is_even(after, weights)
        moved += moves(present, after)
        least += fewest_moves(present, weights)
        runs = max(runs, most_runs(after))
        present = after
    return moved, least, runs


def check_histories(seeds: range, steps: int) -> None:
    results = [history(seed, 1024, steps) for seed in seeds]
    moved, least = (sum(each) for each in list(zip(*results, strict=True))[:2])
    print(f"{moved} buckets moved, {moved - least} more than had to; most runs {max(r[2] for r in results)}")
    assert max(runs for _, _, runs in results) <= MOST_RUNS
    assert moved <= least * 1.001


def test_over_long_histories_shards_have_few_runs_and_hardly_more_buckets_move_than_must() -> None:
    check_histories(range(5), 20)


@pytest.mark.nightly
def test_over_a_thousand_histories_shards_have_few_runs_and_hardly_more_buckets_move_than_must() -> None:
    check_histories(range(1000), 40)


@pytest.mark.parametrize(
    ("text", "weight"), [("", 1), ("0", 0), ("2", 2), ("0.5", Fraction(1, 2)), ("100.25", Fraction(401, 4))]
)
def test_a_weight_is_a_number(text: str, weight: Fraction) -> None:
    assert weight_of(text) == weight


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "much", "1/0", " ", "9" * 7, "1e999999999", ".5", "٣"])
def test_what_is_no_number_from_0_up_is_no_weight(text: str) -> None:
    with pytest.raises(ValueError, match="not a number from 0 up"):
        weight_of(text)


@given(
    st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=64, max_size=64),
    st.sets(st.integers(0, 63)),
    st.sets(st.sampled_from(["a", "b", "c", "d"]), min_size=1),
)
def test_what_is_used_of_the_buckets_is_divided_evenly_with_the_fewest_moves_and_so_is_the_rest(
    owners: list[str], used: set[int], shards: set[str]
) -> None:
    buckets = Buckets(64, "cluster")
    assignment = Assignment.of(buckets, {bucket: Place(owner) for bucket, owner in enumerate(owners)})
    weights = dict.fromkeys(shards, Fraction(1))
    after = due(assignment, weights, {}, used)
    for part in used, set(range(64)) - used:
        shares = Counter(after[bucket] for bucket in part)
        have = Counter(owners[bucket] for bucket in part)
        least, most = len(part) // len(shards), -(-len(part) // len(shards))
        assert all(least <= shares[shard] <= most for shard in shards)
        stayed = sum(owners[bucket] == after[bucket] for bucket in part)
        assert stayed == sum(min(have[shard], shares[shard]) for shard in shards)


@given(
    st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=16, max_size=16),
    st.sets(st.integers(0, 15), min_size=1),
    st.dictionaries(st.integers(0, 15), st.sets(st.sampled_from(["a", "b", "c"]), min_size=1)),
)
def test_a_bucket_goes_to_who_can_work_on_it_if_anybody_can_and_stays_there(
    owners: list[str], used: set[int], unable: dict[int, set[str]]
) -> None:
    buckets, weights = Buckets(16, "cluster"), dict.fromkeys("abc", Fraction(1))

    def after(present: list[str]) -> list[str]:
        places = {bucket: Place(owner) for bucket, owner in enumerate(present)}
        return due(Assignment.of(buckets, places), weights, {}, used, unable)

    first = after(owners)
    for bucket, those in unable.items():
        assert first[bucket] not in those or those == {"a", "b", "c"}
    assert after(first) == first
