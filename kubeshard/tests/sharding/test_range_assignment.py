"""The text of an assignment, and the patches that change it."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.errors import Invalid
from kubeshard.core.patches import JsonPatch
from kubeshard.core.yaml_output import as_yaml
from kubeshard.sharding.assignment import GREATEST, Assignment, DividedDifferently, Place, Report, Unreadable
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.shares import divide
from kubeshard_apiserver.json_patch import apply_json_patch

BUCKETS = Buckets(16)
SHARDS = ["a", "b", "c"]
THREE = {"by": "uid", "buckets": "16", "00-05": "a@3", "06-09": "b to c@4", "10-15": "c@3"}

PLACES = st.builds(Place, st.sampled_from(SHARDS), st.just(""), st.integers(0, 5)) | st.builds(
    Place, st.sampled_from(SHARDS), st.just("d"), st.integers(0, 5)
)
ASSIGNMENTS = st.dictionaries(st.integers(0, 15), PLACES).map(lambda places: Assignment.of(BUCKETS, places))
OWNERS = st.tuples(st.sampled_from(SHARDS), st.sampled_from(["", "e"]))
MOVES = st.dictionaries(st.integers(0, 15), OWNERS)


def patched(data: Mapping[str, str], patch: JsonPatch | None) -> dict[str, str]:
    """The data after the patch, as the API server applies it."""
    changed: Any = apply_json_patch({"data": dict(data)}, patch.ops if patch else ())
    return dict(changed["data"])


def test_an_assignment_is_read_as_people_read_it() -> None:
    assignment = Assignment.parse(THREE)
    assert assignment.places[5:7] == (Place("a", "", 3), Place("b", "c", 4))
    assert assignment.owned_by("b") == {6, 7, 8, 9}
    assert [bucket for bucket, place in enumerate(assignment.places) if place.target] == [6, 7, 8, 9]
    assert assignment.shards == {"a", "b", "c"}
    assert assignment.epoch == 4


@given(ASSIGNMENTS)
def test_what_is_written_is_read_again(assignment: Assignment) -> None:
    assert Assignment.parse(assignment.data()) == assignment


def test_buckets_without_an_owner_are_written() -> None:
    assert Assignment.of(BUCKETS).data() == {"by": "uid", "buckets": "16", "00-15": "@0"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"00-05": None}, "00-05 is missing"),
        ({"10-15": None}, "10-15 is missing"),
        ({"03-04": "c@9"}, "03-04 is there twice"),
        ({"00-15": "c@9"}, "is there twice"),
        ({"16-17": "c@9"}, "'16-17' is not a run"),
        ({"0-5": "c@9"}, "'0-5' is not a run"),
        ({"note": "do not edit"}, "'note' is not a run"),
        ({"00-05": ""}, "'00-05': '' is not like shard@3"),
        ({"00-05": "a"}, "'a' is not like"),
        ({"00-05": "a@"}, "'a@' is not like"),
        ({"00-05": "a@-1"}, "not like"),
        ({"00-05": "a@03"}, "not like"),
        ({"00-05": "a@3 "}, "not like"),
        ({"00-05": "a@" + "9" * 19}, "is greater than any that is ever reached"),
        ({"00-05": " to c@3"}, "not like"),
        ({"00-05": "a to @3"}, "not like"),
        ({"00-05": "a to b to c@3"}, "not like"),
        ({"00-05": "a b@3"}, "not like"),
        ({"00-05": "a_@3"}, "is not the name of a shard"),
        ({"00-05": "a" * 64 + "@3"}, "is not the name of a shard"),
        ({"00-05": "a to -b@3"}, "'-b' is not the name of a shard"),
        ({"00-05": "a to a@3"}, "handed to its own shard"),
        ({"00-05": 3}, "3 is not a text"),
        ({"00-05": {"a": 3}}, "is not a text"),
        ({"by": None}, "by is None"),
        ({"by": "name"}, "by is 'name'"),
        ({"by": ["uid"]}, "by is"),
        ({"buckets": None}, "buckets is None"),
        ({"buckets": "15"}, "buckets is '15'"),
        ({"buckets": "0"}, "buckets is '0'"),
        ({"buckets": "1099511627776"}, "buckets is '1099511627776'"),
        ({"buckets": "32"}, "16-31 is missing"),
        ({"buckets": "8"}, "'10-15' is not a run"),
    ],
)
def test_what_is_not_a_complete_assignment_is_refused_with_the_reason(
    change: dict[str, object], reason: str
) -> None:
    data = {key: value for key, value in {**THREE, **change}.items() if value is not None}
    with pytest.raises(Unreadable) as refused:
        Assignment.parse(data)
    assert any(reason in each for each in refused.value.reasons), refused.value.reasons
    assert len(str(refused.value)) < 2000


def test_an_object_that_somebody_has_filled_takes_no_time_to_read() -> None:
    filled = {f"{first:04}-{last:04}": "@1" for first in range(2048) for last in range(first, first + 40)}
    with pytest.raises(Unreadable, match="it has 81920 more keys, and 2048 buckets"):
        Assignment.parse({"by": "uid", "buckets": "2048", **filled})


@pytest.mark.parametrize("data", [None, {}])
def test_an_object_without_data_is_unreadable(data: dict[str, str] | None) -> None:
    with pytest.raises(Unreadable, match="buckets is None"):
        Assignment.parse(data)


def test_an_unreadable_assignment_has_all_of_its_reasons_and_tells_a_few() -> None:
    with pytest.raises(Unreadable) as refused:
        Assignment.parse({"by": "uid", "buckets": "1024", **{str(i): "?" * 10_000 for i in range(900)}})
    assert len(refused.value.reasons) == 901
    assert str(refused.value).endswith("; and 896 more")
    assert len(str(refused.value)) < 4000


@pytest.mark.parametrize("epoch", ["9" * 18, "9" * 400, str(GREATEST + 1)])
def test_an_epoch_after_which_none_could_be_written_is_refused(epoch: str) -> None:
    with pytest.raises(Unreadable, match="greater than any that is ever reached"):
        Assignment.parse({"by": "uid", "buckets": "2", "0-1": f"a@{epoch}"})
    for said in f"0-1@1/{epoch}", f"0-1@{epoch}/1":
        with pytest.raises(ValueError, match="greater than any that is ever reached"):
            Report.parse(said, Buckets(2))


@given(ASSIGNMENTS, MOVES, st.booleans())
def test_a_change_gives_exactly_these_buckets_the_place_at_a_greater_epoch_than_any(
    assignment: Assignment, moves: dict[int, tuple[str, str]], join: bool
) -> None:
    after = Assignment.parse(patched(assignment.data(), assignment.change(moves, join=join)))
    for bucket, (place, before) in enumerate(zip(after.places, assignment.places, strict=True)):
        if bucket in moves:
            assert place == Place(*moves[bucket], assignment.epoch + 1)
        else:
            assert place[:2] == before[:2]
            assert place.epoch >= before.epoch if join else place.epoch == before.epoch


@given(ASSIGNMENTS, MOVES, MOVES, st.booleans())
def test_of_changes_that_were_made_from_the_same_text_one_group_takes_the_first_and_others_do_not_meet(
    assignment: Assignment, first: dict[int, tuple[str, str]], second: dict[int, tuple[str, str]], join: bool
) -> None:
    def groups(moves: dict[int, tuple[str, str]]) -> set[int]:
        return {at for at, each in enumerate(assignment.groups) if any(b in moves for b in each.run.buckets)}

    data = patched(assignment.data(), assignment.change(first))
    late = assignment.change(second, join=join)
    if groups(first) & groups(second):
        with pytest.raises(Invalid):
            patched(data, late)
    elif not join:
        after = Assignment.parse(patched(data, late))
        for bucket, place in enumerate(after.places):
            wanted = first.get(bucket) or second.get(bucket) or assignment.places[bucket][:2]
            assert place[:2] == wanted


@given(ASSIGNMENTS)
def test_joining_neighbours_never_meets_an_acknowledgement(assignment: Assignment) -> None:
    wants = {bucket: ("c", "") for bucket, place in enumerate(assignment.places) if not place.owner}
    data = patched(assignment.data(), assignment.change(wants, join=True))
    for shard in SHARDS:
        data = patched(data, assignment.acknowledge(shard, assignment.owned_by(shard)))
    assert not any(place.target for place in Assignment.parse(data).places)


def test_joined_neighbours_have_the_greatest_epoch_of_any() -> None:
    assignment = Assignment.parse(
        {
            "by": "uid",
            "buckets": "8",
            "0-1": "a@1",
            "2-2": "a@7",
            "3-3": "a to b@2",
            "4-4": "a@1",
            "5-7": "b@3",
        }
    )
    patch = assignment.change({5: ("c", "")}, join=True)
    assert patched(assignment.data(), patch) == {
        "by": "uid",
        "buckets": "8",
        "0-2": "a@7",
        "3-3": "a to b@2",
        "4-4": "a@1",
        "5-5": "c@8",
        "6-7": "b@3",
    }


def test_a_hand_over_of_any_number_of_buckets_is_two_writes_of_the_groups_concerned() -> None:
    assignment = Assignment.parse({"by": "uid", "buckets": "1024", "0000-1023": "a@1"})
    asked = assignment.change(dict.fromkeys(range(512, 1024), ("a", "b")))
    data = patched(assignment.data(), asked)
    assert data == {"by": "uid", "buckets": "1024", "0000-0511": "a@1", "0512-1023": "a to b@2"}
    assignment = Assignment.parse(data)
    acknowledged = assignment.acknowledge("a", assignment.owned_by("a"))
    assert acknowledged is not None
    assert len(acknowledged.ops) == 2
    assert patched(data, acknowledged) == {
        "by": "uid",
        "buckets": "1024",
        "0000-0511": "a@1",
        "0512-1023": "b@3",
    }


def test_a_shard_gives_away_only_what_it_is_asked_for_and_owns() -> None:
    assignment = Assignment.parse(THREE)
    assert assignment.acknowledge("a", range(16)) is None
    assert assignment.acknowledge("c", range(16)) is None
    part = Assignment.parse(patched(THREE, assignment.acknowledge("b", [6, 9, 12])))
    assert [str(place) for place in part.places[5:11]] == ["a@3", "c@5", "b to c@4", "b to c@4", "c@5", "c@3"]


def test_a_cancelled_and_repeated_drain_is_not_ended_by_a_late_acknowledgement() -> None:
    first = Assignment.parse(THREE)
    late = first.acknowledge("b", first.owned_by("b"))
    data: dict[str, str] = dict(THREE)
    for target in "", "c":
        assignment = Assignment.parse(data)
        data = patched(data, assignment.change(dict.fromkeys(range(6, 10), ("b", target))))
    assert data["06-09"] == "b to c@6"
    with pytest.raises(Invalid):
        patched(data, late)


def test_what_was_decided_about_a_shard_before_it_began_again_takes_no_effect() -> None:
    assignment = Assignment.parse(THREE)
    late = assignment.change(dict.fromkeys(range(6, 10), ("c", "")))
    data = patched(THREE, assignment.reclaim("b"))
    assert data["06-09"] == "b@5"
    with pytest.raises(Invalid):
        patched(data, late)


def test_a_shard_that_owned_nothing_has_nothing_to_reclaim() -> None:
    assert Assignment.parse(THREE).reclaim("d") is None


def test_a_patch_fails_on_an_object_that_was_deleted_or_written_anew() -> None:
    late = Assignment.parse(THREE).change({0: ("b", "")})
    for data in {}, Assignment.of(BUCKETS).data(), {**THREE, "00-05": "a@4"}:
        with pytest.raises(Invalid):
            patched(data, late)


NAMES = [f"webhosting-operator-{random.Random(n).getrandbits(40):010x}-{n:05}" for n in range(500)]
MANY = Buckets(1024)


def shared_out(shards: int, present: Sequence[str] = ("",) * MANY.count) -> Assignment:
    """So many shards have joined, and are asked for what is due to them."""
    due = divide(present, dict.fromkeys(NAMES[:shards], 1))
    pairs = enumerate(zip(present, due, strict=True))
    return Assignment.of(
        MANY, {b: Place(now or to, to if now and now != to else "", 100_000) for b, (now, to) in pairs}
    )


@pytest.mark.parametrize(
    "assignment",
    [
        # As fragmented as it can be: no bucket has a neighbour of its own.
        Assignment.of(MANY, {b: Place(NAMES[b % 500], "", 100_000 + b) for b in MANY.all.buckets}),
        shared_out(500),
        shared_out(500, [place.owner for place in shared_out(250).places]),
    ],
    ids=["fragmented", "shared out", "while half of them join"],
)
def test_five_hundred_shards_fit_into_64_kib_at_1024_buckets_also_as_yaml(assignment: Assignment) -> None:
    assert len(assignment.shards) == 500
    meta = {"name": "ranges-webhosting-operator", "namespace": "webhosting-system"}
    document = {"apiVersion": "v1", "data": assignment.data(), "kind": "ConfigMap", "metadata": meta}
    assert max(len(as_yaml(document)), len(json.dumps(document))) <= 64 * 1024


REPORTS = st.builds(
    Report, st.dictionaries(st.integers(0, 15), st.integers(0, 999)), st.integers(0, GREATEST)
)


@given(REPORTS)
def test_a_report_is_read_as_it_was_written(report: Report) -> None:
    assert Report.parse(str(report), BUCKETS) == report


def test_a_shard_that_has_not_read_the_assignment_yet_says_only_how_it_divides_objects() -> None:
    assert Report.parse("uid/16:", BUCKETS) is None
    with pytest.raises(DividedDifferently):
        Report.parse("uid/32:", BUCKETS)


def test_a_report_is_written_in_runs() -> None:
    assert str(Report({0: 3, 1: 3, 2: 4, 9: 4}, 7)) == "0-1@3,2-2@4,9-9@4/7"
    assert str(Report({}, 0)) == "/0"


@pytest.mark.parametrize(
    "text", ["", "0-1@3", "0-1@3/", "0-1/3", "0-16@3/3", "1-0@3/3", "0-1@3,/3", "x/3", "2-3@3,0-1@3/3"]
)
def test_an_unreadable_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"report|buckets with an epoch"):
        Report.parse(text, BUCKETS)


def test_a_report_says_how_the_shard_divides_objects() -> None:
    report = Report({0: 3}, 7)
    assert Report.parse(report.text(BUCKETS), BUCKETS) == report
    assert Report({}, 0).text(Buckets(64, "namespace")) == "namespace/64:/0"
    with pytest.raises(ValueError, match="divides objects by namespace/64, and the ring by uid/16"):
        Report.parse(report.text(Buckets(64, "namespace")), BUCKETS)


def test_the_text_of_an_assignment_is_the_same_however_json_is_written() -> None:
    texts = [*THREE, *THREE.values()]
    assert not set("<>&\u2028\u2029").intersection("".join(texts))
    assert Assignment.parse(THREE).data() == THREE
