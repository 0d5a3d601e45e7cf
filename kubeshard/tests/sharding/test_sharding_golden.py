"""The golden vectors of the wire contract, and the properties of the ring."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_hexdigest, xxh64_intdigest

from kubeshard.sharding.hash_ring import HashRing, ring_of

PREFIX = "checksum-controller-c95c4fdb6-"
SECRETS = ["foo", *(f"foo{i}" for i in range(1, 10))]


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("", "ef46db3751d8e999"),
        ("a", "d24ec4f1a98c6e5b"),
        ("asdf", "415872f599cea71e"),
        ("Call me Ishmael. Some years ago--never mind how long precisely-", "02a2e85470d6fd96"),
    ],
)
def test_the_hash_is_xxh64_with_seed_0(text: str, digest: str) -> None:
    assert xxh64_hexdigest(text.encode()) == digest


@pytest.mark.parametrize(
    ("shards", "owners"),
    [
        ("7jb2v hv8pb rtvrm", "hv8pb rtvrm 7jb2v rtvrm hv8pb rtvrm hv8pb 7jb2v rtvrm hv8pb"),
        ("7jb2v hv8pb", "hv8pb hv8pb 7jb2v 7jb2v hv8pb hv8pb hv8pb 7jb2v 7jb2v hv8pb"),
        ("7jb2v hv8pb kdrss", "hv8pb hv8pb 7jb2v 7jb2v hv8pb kdrss hv8pb 7jb2v kdrss hv8pb"),
    ],
)
def test_the_guides_secrets_land_on_the_shards_of_a_real_cluster(shards: str, owners: str) -> None:
    ring = HashRing(PREFIX + shard for shard in shards.split())
    assert [ring.owner(f"/Secret/default/{name}") for name in SECRETS] == [PREFIX + o for o in owners.split()]


def test_the_index_named_ring_has_the_reference_tokens() -> None:
    tokens = HashRing(["shard-0", "shard-1", "shard-2"]).tokens()
    assert len(tokens) == 300
    assert tokens[0] == (0x0005F1D06454AEF7, "shard-1")
    assert tokens[-1] == (0xFF27441858369E8E, "shard-0")


@pytest.mark.parametrize(
    ("key", "digest", "shard"),
    [
        ("/Secret/default/foo", 0xA9653F84AE538AA1, "shard-1"),
        ("/ConfigMap/test/bar", 0xC2F98DAE13F4D00C, "shard-2"),
        ("apps/Deployment/bar/foo", 0x82CB424099458184, "shard-2"),
        ("operator/Foo/bar/foo", 0x8C8AD4D86194F2E9, "shard-2"),
        ("webhosting.timebertt.dev/Website/project-foo/homepage", 0x292EE0A485F0B9A2, "shard-2"),
        ("rbac.authorization.k8s.io/ClusterRole//admin", 0xDA9B95F35E2AB0C2, "shard-0"),
    ],
)
def test_keys_have_the_reference_hash_and_owner(key: str, digest: int, shard: str) -> None:
    assert xxh64_intdigest(key.encode()) == digest
    assert HashRing(["shard-0", "shard-1", "shard-2"]).owner(key) == shard


def test_an_empty_ring_owns_nothing() -> None:
    assert HashRing().owner("/Secret/default/foo") == ""
    assert len(HashRing()) == 0


def test_a_key_past_the_last_token_belongs_to_the_first() -> None:
    ring = HashRing(["shard-0", "shard-1", "shard-2"])
    first, last = ring.tokens()[0][1], ring.tokens()[-1][0]
    beyond = next(key for key in map(str, range(100_000)) if xxh64_intdigest(key.encode()) > last)
    assert ring.owner(beyond) == first


@pytest.mark.parametrize(("shards", "collisions"), [(12, 10), (20, 90), (100, 810)])
def test_index_names_collide_as_often_as_in_the_reference(shards: int, collisions: int) -> None:
    """A1 in docs/defects.md."""
    assert shards * 100 - len(HashRing(f"op-{i}" for i in range(shards)).tokens()) == collisions


def test_of_colliding_names_the_last_in_byte_order_wins_whatever_order_they_came_in() -> None:
    """A1 in docs/defects.md: op-1 + "10" == op-11 + "0"."""
    names = [f"op-{i}" for i in range(100)]
    ring = HashRing(names)
    collided = xxh64_intdigest(b"op-110")
    assert dict(ring.tokens())[collided] == "op-11"
    for seed in range(5):
        random.Random(seed).shuffle(names)
        assert HashRing(names).tokens() == ring.tokens()


@given(st.sets(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=8), st.text(max_size=20))
def test_a_leaving_shard_only_moves_its_own_keys(shards: set[str], key: str) -> None:
    names = sorted(shards)
    before = HashRing(names).owner(key)
    after = HashRing(names[1:]).owner(key)
    assert after == before or before == names[0]


def test_shares_are_as_even_as_the_protocol_says() -> None:
    """Of three shards the worst ring of thirty gives one shard 1.20 of its share."""
    rng = random.Random(1)
    for _ in range(10):
        names = ["op-" + "".join(rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5)) for _ in range(3)]
        ring = HashRing(names)
        owners = [ring.owner(f"/Secret/default/{i}") for i in range(3000)]
        assert max(owners.count(name) for name in names) < 1300


def test_a_ring_is_remembered_by_its_names() -> None:
    assert ring_of(("a", "b")) is ring_of(("a", "b"))
