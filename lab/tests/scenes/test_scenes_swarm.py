"""A few minutes of the swarm: one shard at a time works on an object, and in the end every object has an owner."""

from pathlib import Path

import pytest
from tiers import further

from kubeshard.core.errors import ConfigurationError
from kubeshard_lab.simulation.faults.injection import AIMED, KINDS, ONLY_BY
from kubeshard_lab.simulation.properties import NEGLECTED
from kubeshard_lab.simulation.running import drawn, play
from kubeshard_lab.simulation.script import Script, Sharder, shrunk
from measures import MEASURES, SEEDS, Measure, ablated, switched_off
from simulation_digest import explore

pytestmark = pytest.mark.regression

QUICK = ("tombstone",)
LATE = frozenset(
    {
        "fence",
        "watchdog",
        "stale guard",
        "restore noticed",
        "deadline",
        "time to notice an eviction",
        "news after a silence",
        "stale view distrusted",
        "owner read before a child",
        "fence by versions",
        "take-over confirmed",
        "assignment mended",
        "renewals before a shard begins",
    }
)
"""Measures whose absence takes more than five seconds of processor time to notice."""


def without(measure: Measure) -> object:
    """The measure as a parameter, in one of the tiers."""
    tier = pytest.mark.quick if measure.name in QUICK else pytest.mark.nightly
    return pytest.param(measure, id=measure.name, marks=tier if measure.name in {*QUICK, *LATE} else ())


@pytest.mark.parametrize("seed", [1, *further(2, 3)])
def test_one_shard_at_a_time_works_on_an_object_and_all_are_owned_after_random_faults(seed: int) -> None:
    result = explore(seed, 3, objects=20)
    assert result.counts["writes"] > 50
    assert result.breaks == []


@pytest.mark.parametrize(
    ("seed", "sharder"), [(1, "in-manager"), *further((1, "both"), (2, "in-manager"), (2, "both"))]
)
def test_the_same_holds_where_an_elected_shard_is_the_sharder(seed: int, sharder: str) -> None:
    result = explore(seed, 3, objects=20, sharder=sharder)
    assert result.counts["writes"] > 50
    assert result.breaks == []


@pytest.mark.parametrize(
    ("seed", "delivery", "sharder"),
    [
        (1, "uid", "in-manager"),
        (2, "namespace", "service"),
        (1, "cluster", "in-manager"),
        *further(
            (2, "cluster", "in-manager"),
            (1, "namespace", "in-manager"),
            (2, "uid", "both"),
            (3, "uid", "service"),
        ),
    ],
)
def test_the_same_holds_where_objects_are_shared_out_by_ranges(
    seed: int, delivery: str, sharder: str
) -> None:
    result = explore(seed, 3, objects=20, sharder=sharder, delivery=delivery)
    assert result.counts["writes"] > 50
    assert result.breaks == []


@pytest.mark.quick
@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_every_measure_can_be_switched_off_and_is_there_again_afterwards(measure: Measure) -> None:
    before = [vars(owner)[attribute] for owner, attribute, _ in measure.off]
    with switched_off([measure.name]):
        assert all(vars(owner)[attribute] is replacement for owner, attribute, replacement in measure.off)
    assert [vars(owner)[attribute] for owner, attribute, _ in measure.off] == before


@pytest.mark.parametrize("measure", [without(each) for each in MEASURES])
def test_the_absence_of_a_measure_is_noticed(measure: Measure) -> None:
    noticed = (ablated(measure, seed) for seed in SEEDS)
    assert any(result.broken[measure.oracle] for result in noticed)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(AIMED))
def test_faults_that_are_aimed_at_a_measure_break_nothing_while_it_is_there(kind: str) -> None:
    delivery, *_ = ONLY_BY.get(kind, ("labels",))
    result = explore(601, 4, [kind], calm=0.7, delivery=delivery)
    assert result.counts[f"effects: {kind}"]
    assert result.breaks == []


@pytest.mark.parametrize("delivery", ["uid", "labels"])
def test_without_a_coordinator_objects_are_created_changed_and_deleted_by_ranges_but_not_by_labels(
    delivery: str,
) -> None:
    result = explore(1, 3, ["no_coordinator"], delivery=delivery, sharder="in-manager")
    assert result.counts["effects: no_coordinator"]
    assert (NEGLECTED.name in result.broken) == (delivery == "labels")


@pytest.mark.parametrize("sharder", ["in-manager", "service"])
@pytest.mark.parametrize("seed", [1, *further(2, 3)])
def test_a_ring_goes_from_ranges_to_labels_and_back_under_random_faults(seed: int, sharder: Sharder) -> None:
    result = explore(
        seed, 6, ["other_delivery", "kill", "scale", "restart", "late"], sharder=sharder, delivery="uid"
    )
    assert result.counts["effects: other_delivery"] > 3
    assert result.breaks == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "measure", [each for each in MEASURES if each.covered_by], ids=lambda each: each.name
)
def test_a_second_line_of_defence_is_one(measure: Measure) -> None:
    alone = measure._replace(covered_by=())
    assert not ablated(alone, 601).broken[measure.oracle]


@pytest.mark.nightly
def test_a_script_plays_alike_again_from_a_file(tmp_path: Path) -> None:
    script = drawn(Script(seed=601, minutes=1, calm=0.7), ["block"])
    script.save(tmp_path / "script.json")
    with switched_off(["healthy renewal"]):
        result = play(script)
        assert result.broken["hung"]
        assert play(Script.load(tmp_path / "script.json", KINDS)).breaks == result.breaks


@pytest.mark.quick
def test_a_script_shrinks_to_the_faults_that_matter() -> None:
    script = drawn(Script(seed=1, minutes=10), ["kill", "pause", "cut"])
    pauses = [fault for fault in script.faults if fault.kind == "pause"][1:3]

    def fails(smaller: Script) -> bool:
        kept = [fault for fault in smaller.faults if fault.draws in {pause.draws for pause in pauses}]
        return len(kept) == 2 and kept[0].stretch >= 0.5 and smaller.minutes * 60 > pauses[1].after

    small = shrunk(script, fails)
    assert [fault.after for fault in small.faults] == [pause.after for pause in pauses]
    assert [fault.stretch for fault in small.faults] == [0.5, 0.1]
    assert small.minutes < 10


@pytest.mark.quick
def test_a_script_that_fails_without_faults_shrinks_to_none() -> None:
    script = drawn(Script(seed=1, minutes=10), ["kill", "pause", "cut"])
    told: list[str] = []
    small = shrunk(script, lambda smaller: True, tell=told.append)
    assert small.faults == ()
    assert small.minutes < 1
    assert told[0] == "no fault is needed"


@pytest.mark.quick
def test_a_file_that_is_no_script_is_named(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text('{"seed": 1, "minutes": 1, "faults": [{"after": 1, "kind": "flood", "draws": "1"}]}')
    with pytest.raises(ConfigurationError, match="faults that do not exist: flood"):
        Script.load(file, KINDS)
    file.write_text("{")
    with pytest.raises(ConfigurationError, match="is no script of a simulation"):
        Script.load(file, KINDS)
