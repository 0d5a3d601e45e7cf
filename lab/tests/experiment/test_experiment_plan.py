"""The requests of a scenario: at its rates, the same for the same seed, and only to objects that exist by plan."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from kubeshard_lab.experiment.plan import Due, LoadPlan
from kubeshard_lab.experiment.scenarios import SCENARIOS, Scenario, scaled
from kubeshard_lab.virtual_world import SeededRng


def requests(scenario: Scenario, seed: int = 1) -> list[Due]:
    return list(LoadPlan(scenario, SeededRng(seed)))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_seed_gives_the_same_requests_and_another_one_others(name: str) -> None:
    scenario = scaled(SCENARIOS[name], 0.02, None)
    one, same, other = (LoadPlan(scenario, SeededRng(seed)) for seed in (1, 1, 2))
    assert (one.projects, one.themes, one.existing) == (same.projects, same.themes, same.existing)
    assert list(one) == list(same)
    assert one.projects != other.projects


@pytest.mark.parametrize("name", SCENARIOS)
def test_requests_come_in_order_within_the_duration_and_only_to_objects_that_exist(name: str) -> None:
    scenario = scaled(SCENARIOS[name], 0.02, 300.0)
    plan = LoadPlan(scenario, SeededRng(1))
    living = {(due.namespace, due.name): due.theme for due in plan.existing}
    before, numbers = 0.0, {due.number for due in plan.existing}
    for due in plan:
        assert before <= due.after < scenario.duration
        assert due.number not in numbers
        before, of = due.after, (due.namespace, due.name)
        numbers.add(due.number)
        if due.verb == "create":
            assert of not in living
            living[of] = due.theme
        elif due.verb == "delete":
            del living[of]
        elif due.namespace:
            assert due.theme != living[of], "a change changes something"
            if scenario.changes_spec:
                living[of] = due.theme
        else:
            assert due.name in plan.themes


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "created", "deleted", "objects", "changes_at_the_end"),
    [
        ("basic", 10_800, 1_800, 9_000, 140.0),
        ("scale-out", 9_000, 0, 9_000, 280.0),
        ("chaos", 4_500, 0, 4_500, 35.0),
        ("rolling-update", 10_800, 1_800, 9_000, 140.0),
        ("base", 8_400, 600, 7_800, 100.0),
    ],
)
def test_a_published_scenario_has_its_published_rates(
    name: str, created: int, deleted: int, objects: int, changes_at_the_end: float
) -> None:
    found = requests(SCENARIOS[name])
    verbs = Counter(due.verb for due in found)
    assert verbs["create"] == created
    assert verbs["delete"] == deleted
    assert created - deleted == objects
    last_minute = [due for due in found if due.verb == "patch" and due.namespace and due.after >= 840]
    assert len(last_minute) / 60 == pytest.approx(changes_at_the_end, rel=0.06)


def test_each_object_changes_at_its_own_beat() -> None:
    times: dict[str, list[float]] = {}
    for due in requests(scaled(SCENARIOS["basic"], 0.1, None)):
        if due.verb != "delete":
            times.setdefault(due.name, []).append(due.after)
    gaps = [later - earlier for each in times.values() for earlier, later in pairwise(each)]
    assert min(gaps) >= 60.0 - 1e-9
    assert max(gaps) <= 60.0 + 1 / 1.2


def test_a_storm_changes_every_object_once_within_its_time() -> None:
    scenario = scaled(SCENARIOS["storm"], 0.1, None)
    found = requests(scenario)
    first = [due for due in found if due.after < 300]
    assert len({due.name for due in first}) == len(first) == scenario.existing == 300
    assert first[-1].after - first[0].after <= scenario.storm_within


def test_a_limit_on_changes_holds() -> None:
    scenario = msgspec.structs.replace(
        SCENARIOS["base"], theme_every=0.0, changes_at_most=5.0, duration=600.0
    )
    per_second = Counter(int(due.after) for due in requests(scenario) if due.verb == "patch")
    assert max(per_second.values()) <= 6


@pytest.mark.parametrize(
    ("name", "every"), [("chaos", 40.0), ("rolling-update", 40.0), ("flapping", 10.0), ("storm", 40.0)]
)
def test_a_shorter_run_has_as_many_disturbances(name: str, every: float) -> None:
    scenario = scaled(SCENARIOS[name], 1.0, 120.0)
    assert scenario.duration == 120
    assert (scenario.storm_every or scenario.disturbed_every) == every


def test_the_help_of_chaos_says_how_often_an_instance_is_deleted() -> None:
    assert SCENARIOS["chaos"].disturbed_every == 300
    assert "every 5 min an instance is deleted" in SCENARIOS["chaos"].summary
