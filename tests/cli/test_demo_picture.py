"""The demo's picture of a ring is what Leases and labels say."""

from kubeshard.cli.demo.picture import Sharded, picture
from kubeshard.core import Lease, LeaseSpec, ObjectMeta, OwnerReference
from kubeshard.sharding.names import STATE_LABEL, drain_label, shard_label
from kubeshard.sharding.ring import ring_of

RING = "webhosting-operator"
MAIN = ("webhosting.timebertt.dev/v1alpha1", "Website")


def lease(name: str, holder: str, state: str) -> Lease:
    return Lease(
        metadata=ObjectMeta(name=name, labels={STATE_LABEL: state}), spec=LeaseSpec(holder_identity=holder)
    )


def website(name: str, shard: str, *, draining: bool = False) -> Sharded:
    labels = {shard_label(RING): shard} if shard else {}
    if draining:
        labels[drain_label(RING)] = "true"
    return Sharded(ObjectMeta(name=name, namespace="ns", labels=labels), MAIN)


def owner(name: str, *shards: str) -> str:
    return ring_of(tuple(sorted(shards))).owner(f"webhosting.timebertt.dev/Website/ns/{name}")


def test_a_ring_is_settled_when_every_object_is_where_the_hash_ring_puts_it() -> None:
    leases = [lease("a", "a", "ready"), lease("b", "b", "ready")]
    objects = [website(name, owner(name, "a", "b")) for name in ("x", "y", "z")]
    view = picture(RING, leases, objects)
    assert view.settled
    assert sum(row.objects for row in view.rows) == view.total == 3


def test_objects_of_a_dead_shard_are_stranded() -> None:
    view = picture(
        RING, [lease("a", "a", "ready"), lease("b", "shardlease-controller", "dead")], [website("x", "b")]
    )
    assert (view.stranded, view.settled) == (1, False)
    assert [(row.shard, row.live, row.state) for row in view.rows] == [
        ("a", True, "ready"),
        ("b", False, "dead"),
    ]


def test_unassigned_draining_and_misplaced_objects_are_told_apart() -> None:
    leases = [lease("a", "a", "ready"), lease("b", "b", "ready")]
    wrong = "b" if owner("x", "a", "b") == "a" else "a"
    view = picture(
        RING,
        leases,
        [website("x", wrong), website("y", ""), website("z", owner("z", "a", "b"), draining=True)],
    )
    assert (view.misplaced, view.unassigned, view.draining, view.settled) == (1, 1, 1, False)


def test_an_object_without_a_controller_is_not_sharded() -> None:
    plain = Sharded(ObjectMeta(name="plain", namespace="ns"), None)
    reference = OwnerReference(api_version=MAIN[0], kind="Website", name="x", uid="1", controller=True)
    child = Sharded(
        ObjectMeta(
            name="child", namespace="ns", labels={shard_label(RING): "a"}, owner_references=(reference,)
        ),
        None,
    )
    view = picture(RING, [lease("a", "a", "ready")], [plain, child])
    assert (view.total, view.settled) == (1, True)
    assert view.rows[0].followers == 1
