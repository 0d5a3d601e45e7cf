"""What a page remembers of a ring."""

from __future__ import annotations

from kubeshard.inspection.history import KEPT, TOGETHER, History
from kubeshard.inspection.stats import RingSnapshot, ShardRow


def snapshot(moves: int = 0, unread: tuple[str, ...] = (), **states: str) -> RingSnapshot:
    rows = [ShardRow(name, state, state in ("ready", "expired"), 1, 0, 0) for name, state in states.items()]
    return RingSnapshot(tuple(rows), moves=moves, unread=unread)


def seen(*pictures: RingSnapshot) -> list[str]:
    history = History()
    for second, each in enumerate(pictures):
        history.see(each, float(second))
    return [each.what for each in reversed(history.latest(KEPT))]


def test_who_was_there_from_the_start_has_not_joined() -> None:
    assert seen(snapshot(a="ready")) == []
    assert seen(snapshot(unread=("secrets: being read",)), snapshot(a="ready")) == []


def test_shards_join_expire_leave_and_go() -> None:
    life = [snapshot(a="ready", b=state) for state in ("ready", "expired", "dead")]
    assert seen(snapshot(a="ready"), *life, snapshot(a="ready")) == [
        "b joined",
        "b is expired",
        "b left: its Lease is dead",
        "b is gone",
    ]


def test_moves_that_follow_each_other_are_one_happening() -> None:
    assert seen(snapshot(0), snapshot(1)) == ["1 object moved"]
    assert seen(snapshot(0), snapshot(3), snapshot(5)) == ["5 objects moved"]
    history = History()
    for second, moves in ((0.0, 0), (1.0, 1), (1.0 + 2 * TOGETHER, 2)):
        history.see(snapshot(moves), second)
    assert [each.what for each in history.latest(9)] == ["1 object moved", "1 object moved"]


def test_a_ring_that_was_edited_counts_from_the_start() -> None:
    assert seen(snapshot(7), snapshot(0), snapshot(2)) == ["2 objects moved"]


def test_memory_is_bounded() -> None:
    history = History()
    for second in range(3 * KEPT):
        history.see(snapshot(second), second * 2 * TOGETHER)
    assert len(history.latest(10 * KEPT)) == KEPT
