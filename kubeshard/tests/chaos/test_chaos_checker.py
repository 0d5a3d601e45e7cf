"""The checker finds what is wrong in made-up records, and nothing else."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chaos_checker import MARK, SHARDER_USER, Verdict, check
from chaos_ranges import Shares
from chaos_records import (
    Asked,
    Audited,
    Change,
    Lived,
    Marked,
    Object,
    Record,
    Worked,
    from_document,
    to_document,
)

from kubeshard.core import ObjectMeta
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import bucket_label

SHARD, DRAIN = (f"{label}.alpha.sharding.timebertt.dev/ring" for label in ("shard", "drain"))
CONFIRMED = "alpha.sharding.timebertt.dev/confirmed-ended"
BOUND = 10.0


def obj(shard: str = "a", by: str = "", drained: bool = False, **spec: Any) -> Object:
    labels = {**({SHARD: shard} if shard else {}), **({DRAIN: "true"} if drained else {})}
    return {"metadata": {"labels": labels, "annotations": {MARK: by} if by else {}}, "spec": spec}


def stored(
    at: float, before: Object | None, after: Object | None, kind: str = "main", name: str = "o"
) -> Change:
    return Change(at, round(at * 10), kind, name, before, after)


def answered(change: Change, user: str, code: int = 200, verb: str = "patch") -> Audited:
    revision = 0 if verb == "delete" else change.revision
    return Audited(change.at, user, verb, change.kind, change.name, code, revision)


def alive(*shards: str) -> Sequence[Record]:
    """Processes 1, 2, ... that have been at work since the beginning."""
    return [
        record
        for pid, shard in enumerate(shards, 1)
        for record in (
            Lived(0.0, shard, pid, "started"),
            Worked(0.0, shard, pid, f"of {shard}", 0, "began"),
            Worked(0.0, shard, pid, f"of {shard}", 0, "ended"),
        )
    ]


def worked(pid: int, began: float, ended: float | None, shard: str = "a", run: int = 1) -> Sequence[Worked]:
    found = [Worked(began, shard, pid, "o", run, "began")]
    return [*found, *([Worked(ended, shard, pid, "o", run, "ended")] if ended is not None else [])]


def lease(at: float, holder: str, transitions: int = 1, confirmed: str = "", shard: str = "a") -> Change:
    annotations = {CONFIRMED: confirmed} if confirmed else {}
    spec = {"holderIdentity": holder, "leaseTransitions": transitions}
    held = {"metadata": {"annotations": annotations}, "spec": spec}
    return stored(at, held, held, "lease", f"ns/{shard}")


def judged(*records: Record, **how: bool) -> Verdict:
    there = obj()
    begin = [Marked(1.0, "began"), stored(1.0, there, there), *alive("a", "b")]
    return check([*begin, *records, Marked(50.0, "settled")], "ring", BOUND, **how)


def rules(*records: Record) -> list[str]:
    return sorted({finding.rule for finding in judged(*records).findings})


def test_who_judges_shares_no_code_with_whom_is_judged() -> None:
    for name in ("chaos_checker", "chaos_ranges", "chaos_records", "chaos_users", "chaos_witness"):
        tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text())
        imported = [
            node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
        ]
        assert not [module for module in imported if module.startswith("kubeshard")]


def test_a_ring_at_work_is_all_right() -> None:
    began = stored(2.0, obj(), obj(by="a/1/1/began"))
    ended = stored(3.0, began.after, obj(by="a/1/1/ended"))
    assert not rules(
        began, answered(began, "shard:a"), ended, answered(ended, "shard:a"), *worked(1, 2.0, 3.0)
    )


def test_a_write_to_an_object_of_another_shard_is_stale() -> None:
    late = stored(5.0, obj("b"), obj("b", by="a/1/1/ended"))
    assert rules(stored(4.0, obj(), obj("b")), late, answered(late, "shard:a")) == ["stale write"]


def test_with_ranges_a_late_write_is_stale_if_the_present_shard_has_written_since_it_has_the_object() -> None:
    moved = stored(4.0, obj(), obj("b"))
    first, late = stored(5.0, obj("b"), obj("b", n=1)), stored(6.0, obj("b"), obj("b", by="a/1/1/ended"))
    verdict = judged(moved, late, answered(late, "shard:a"), by_versions=True, late=True)
    assert (verdict.findings, verdict.late_writes) == ([], 1)
    verdict = judged(moved, late, answered(late, "shard:a"), by_versions=True)
    assert [finding.rule for finding in verdict.findings] == ["late write"]
    ours = answered(first, "shard:b")
    verdict = judged(moved, first, ours, late, answered(late, "shard:a"), by_versions=True)
    assert (verdict.count("stale write"), verdict.late_writes) == (1, 0)


def test_with_ranges_the_shard_of_an_object_is_that_of_its_bucket_and_a_child_names_its_own() -> None:
    buckets, shares = Buckets(8), Shares("ring")
    places = {bucket: Place("a", "b" if bucket == 7 else "", 1) for bucket in range(4, 8)}
    shares.assigned({"data": Assignment.of(buckets, places).data()})
    for number in range(50):
        meta = {"uid": f"uid-{number}"}
        bucket = buckets.of(ObjectMeta(uid=meta["uid"]))
        asked = {DRAIN: "b"} if bucket == 7 else {}
        owned = {SHARD: "a"} if bucket >= 4 else {}
        named = {bucket_label("ring"): str(bucket)}
        assert shares.labelled("main", {"metadata": meta}) == {
            "metadata": {**meta, "labels": {**named, **owned, **asked}}
        }
        child = shares.labelled("child", {"metadata": {"labels": named}})
        assert child == {"metadata": {"labels": {**named, **owned}}}
    before = shares.labelled("main", {"metadata": {"uid": "uid-1"}})
    for broken in (None, {"data": {"buckets": "8", "0000-0003": "c@1"}}):
        shares.assigned(broken)
        assert shares.labelled("main", {"metadata": {"uid": "uid-1"}}) == before


def test_by_namespace_an_object_and_a_child_have_the_shard_and_the_bucket_of_their_namespace() -> None:
    buckets, shares = Buckets(8, "namespace"), Shares("ring")
    shares.assigned(
        {"data": Assignment.of(buckets, {each: Place(f"s{each}", "", 1) for each in range(8)}).data()}
    )
    for number in range(20):
        meta = {"uid": f"uid-{number}", "namespace": f"{number}-place"}
        bucket = str(buckets.of(ObjectMeta(namespace=meta["namespace"])))
        labels = {SHARD: f"s{bucket}", bucket_label("ring"): bucket}
        for kind in ("main", "child"):
            assert shares.labelled(kind, {"metadata": meta}) == {"metadata": {**meta, "labels": labels}}


def test_a_write_that_lands_though_its_answer_was_lost_is_known_by_its_mark() -> None:
    late = stored(5.0, obj("b"), obj("b", by="a/1/1/ended"))
    verdict = judged(stored(4.0, obj(), obj("b")), late, answered(late, "shard:a", 504))
    assert verdict.count("stale write") == 1
    assert verdict.landed_unanswered == 1


def test_a_write_to_a_child_of_another_shards_object_is_stale() -> None:
    late = stored(5.0, obj(), obj(by="a/1/1/child"), "child")
    assert rules(stored(4.0, obj(), obj("b")), late) == ["parted", "stale write"]


@pytest.mark.parametrize(
    ("by", "began", "later", "excused"),
    [
        ("somebody", 3.0, (), True),
        ("somebody", 4.5, (), False),
        (SHARDER_USER, 3.0, (), False),
        ("somebody", 3.0, (stored(4.2, obj("b"), obj("c")),), False),
    ],
    ids=["a user", "a user before the run", "a sharder", "a user, and then a sharder"],
)
def test_a_run_may_write_a_child_whose_owner_a_user_gave_away_meanwhile(
    by: str, began: float, later: Sequence[Change], excused: bool
) -> None:
    given = stored(4.0, obj(), obj("b"))
    written = stored(5.0, obj(), obj(by="a/1/1/child"), "child")
    moves = [answered(each, SHARDER_USER) for each in later]
    verdict = judged(
        given,
        answered(given, by),
        *later,
        *moves,
        *worked(1, began, 6.0),
        written,
        stored(7.0, written.after, obj("b"), "child"),
        *(stored(7.0, obj("c"), obj("b")) for _ in later),
    )
    assert verdict.excused_children == excused
    assert verdict.count("stale write") == (not excused)


def test_a_stale_delete_is_noticed() -> None:
    gone = stored(5.0, obj("b"), None)
    assert rules(stored(4.0, obj(), obj("b")), gone, answered(gone, "shard:a", verb="delete")) == [
        "stale write"
    ]
    assert not rules(stored(4.0, obj(), obj("b")), gone, answered(gone, "user", verb="delete"))


@pytest.mark.parametrize("late", [True, False])
def test_a_late_create_is_a_finding_only_if_nothing_that_is_sent_may_arrive_late(late: bool) -> None:
    created = stored(5.0, None, obj(by="a/1/1/child"), "child")
    follows = stored(5.1, created.after, obj("b"), "child")
    verdict = judged(stored(4.0, obj(), obj("b")), created, follows, late=late)
    assert verdict.late_creates == 1
    assert [finding.rule for finding in verdict.findings] == ([] if late else ["late write"])


def test_taking_back_a_label_is_no_stale_write() -> None:
    back = stored(5.0, obj(""), obj("a"))
    assert not rules(stored(4.0, obj(), obj("")), back, answered(back, "shard:a"))


def test_a_sharder_changes_labels_only() -> None:
    moved = stored(4.0, obj(x=1), obj("b", x=1))
    assert not rules(moved, answered(moved, SHARDER_USER))
    more = stored(4.0, obj(x=1), obj("b", x=2))
    assert rules(more, answered(more, SHARDER_USER)) == ["interference"]


def test_two_processes_at_work_on_one_object_overlap() -> None:
    assert rules(*worked(1, 2.0, 4.0), *worked(2, 3.0, 5.0, "b")) == ["overlap"]
    assert not rules(*worked(1, 2.0, 4.0), *worked(2, 4.0, 5.0, "b"))
    assert not rules(*worked(1, 2.0, 4.0), *worked(1, 3.0, 5.0, run=2))  # the queue's business


def test_two_processes_at_work_in_one_bucket_overlap() -> None:
    others = [replace(each, name="p") for each in worked(2, 3.0, 5.0, "b")]

    def in_bucket(name: str, bucket: str) -> Change:
        there = {"metadata": {"labels": {SHARD: "a", f"bucket.{SHARD.removeprefix('shard.')}": bucket}}}
        return stored(1.5, there, there, name=name)

    assert rules(in_bucket("o", "7"), in_bucket("p", "7"), *worked(1, 2.0, 4.0), *others) == ["overlap"]
    assert not rules(in_bucket("o", "7"), in_bucket("p", "8"), *worked(1, 2.0, 4.0), *others)


def test_an_overlap_soon_after_a_user_gave_the_object_away_is_the_users() -> None:
    given = stored(2.0, obj(), obj("b"))
    overlap = [*worked(1, 1.5, 4.0), *worked(2, 3.0, 5.0, "b")]
    assert judged(given, answered(given, "somebody"), *overlap).excused_overlaps == 1
    assert not rules(given, answered(given, "somebody"), *overlap)
    assert rules(given, answered(given, SHARDER_USER), *overlap) == ["overlap"]


@pytest.mark.parametrize(
    ("leases", "found"),
    [
        ([], 1),
        ([lease(3.0, "a")], 1),
        ([lease(3.0, "sharder", 2)], 1),
        ([lease(3.0, "sharder", 2, "1/operator")], 1),
        ([lease(3.0, "sharder", 2, "2/operator")], 0),
        ([lease(3.0, "", 2)], 0),
        ([lease(3.0, "", 2), lease(4.0, "a", 3)], 0),
        ([lease(3.0, "", 2), lease(4.0, "a", 3), lease(11.0, "sharder", 4)], 1),
    ],
)
def test_an_object_that_moves_before_the_end_of_its_shard_is_confirmed_is_noticed_in_a_strict_ring(
    leases: Sequence[Record], found: int
) -> None:
    moved = stored(12.0 if len(leases) > 2 else 5.0, obj(), obj("b"))
    for by in (SHARDER_USER, "shard:b"):
        assert judged(*leases, moved, answered(moved, by), strict=True).count("unconfirmed") == found
    for by in ("shard:a", "somebody"):
        assert not judged(*leases, moved, answered(moved, by), strict=True).count("unconfirmed")
    assert not judged(*leases, moved, answered(moved, SHARDER_USER)).count("unconfirmed")


def test_work_ends_with_its_process_and_not_when_it_is_stopped() -> None:
    later = [*worked(1, 2.0, None), *worked(2, 30.0, 31.0, "b")]
    killed, stopped = Lived(3.0, "a", 1, "died"), Lived(3.0, "a", 1, "stopped")
    taken = stored(4.0, obj(), obj("b"))
    assert not rules(killed, taken, *later)
    assert rules(stopped, taken, *later) == ["overlap"]


def test_marks_of_another_process_within_a_run_are_an_overlap_whatever_the_journals_say() -> None:
    first = stored(2.0, obj(), obj(by="a/1/1/began"))
    second = stored(3.0, obj("b", by="a/1/1/began"), obj("b", by="b/2/1/began"))
    third = stored(4.0, second.after, obj("b", by="a/1/1/ended"))
    assert rules(first, second, third) == ["overlap", "stale write"]
    assert not rules(first, second)  # the first run has failed


@pytest.mark.parametrize("seconds", [9.0, 11.0])
def test_an_object_without_a_living_shard_for_longer_than_the_bound_is_an_orphan(seconds: float) -> None:
    died = Lived(5.0, "a", 1, "died")
    verdict = judged(died, stored(5.0 + seconds, obj(), obj("b")))
    assert verdict.count("orphan") == (seconds > BOUND)
    assert verdict.longest_without_owner == seconds
    assert verdict.moves == 1


def test_a_shard_that_was_started_again_lives_when_it_works() -> None:
    again = [Lived(5.0, "a", 1, "died"), Lived(6.0, "a", 3, "started"), *worked(3, 8.0, 9.0)]
    assert judged(*again).longest_without_owner == 3.0


def test_a_drained_object_that_nobody_takes_is_an_orphan() -> None:
    assert rules(stored(5.0, obj(), obj(drained=True))) == ["orphan"]


def test_an_object_that_was_created_at_the_very_end_may_wait_for_its_shard() -> None:
    assert not rules(stored(49.9, None, obj(""), name="new"))
    assert rules(stored(45.0, None, obj(""), name="new")) == ["orphan"]


def test_an_object_that_loses_its_shard_at_the_very_end_is_an_orphan() -> None:
    assert rules(stored(49.9, obj(), obj(drained=True))) == ["orphan"]
    assert rules(stored(49.9, obj(), obj(""))) == ["orphan"]


def test_an_object_that_is_deleted_needs_no_shard() -> None:
    assert not rules(Lived(5.0, "a", 1, "died"), stored(6.0, obj(), None))


def test_a_users_request_is_judged_only_while_the_control_probe_is_healthy() -> None:
    failed = Asked(10.0, 11.0, False, "create", "500")
    assert rules(failed, Asked(9.0, 9.1, True, "probe", "")) == ["failed request"]
    excused = judged(failed, Asked(9.0, 9.1, True, "probe", "timeout"))
    assert not excused.findings
    assert excused.excused_requests == 1
    assert not rules(failed, Asked(9.0, 9.1, True, "probe", ""), Lived(10.5, "kube-apiserver", 9, "died"))


def test_what_was_seen_can_be_kept_and_judged_again() -> None:
    records: list[Record] = [
        stored(4.0, obj(), obj("b")),
        answered(stored(4.0, obj(), obj("b")), SHARDER_USER),
        *worked(1, 2.0, 3.0),
        Lived(3.0, "a", 1, "died"),
        Asked(1.0, 2.0, True, "probe", ""),
        Marked(3.0, "mended"),
    ]
    again = [from_document(json.loads(json.dumps(to_document(record)))) for record in records]
    assert again == records


def test_an_object_with_a_living_shard_that_does_not_begin_with_it_is_neglected() -> None:
    records = [Marked(1.0, "began"), stored(1.0, obj(), obj()), *alive("a"), *worked(1, 14.0, 15.0)]
    found = check([*records, Marked(20.0, "settled")], "ring", BOUND, again=2.0)
    assert [finding.rule for finding in found.findings] == ["neglected"]
    assert not check([*records, Marked(20.0, "settled")], "ring", BOUND, again=4.0).findings
