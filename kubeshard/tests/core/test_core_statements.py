"""The status that a controller declares: completed, merged into the existing one, and checked for additional fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core import Condition, KubeObject, Struct, field
from kubeshard.core.desired_status import completed, has_conditions, leaves_out, stating


class AppStatus(Struct):
    observed_generation: int = 0
    url: str | None = None
    parts: Mapping[str, str] | None = None
    conditions: tuple[Condition, ...] = ()


OLD, NOW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"


def cond(type: str = "Ready", status: str = "True", **more: Any) -> Condition:
    return Condition(type=type, status=status, **{"reason": "Told", **more})


def there(*conditions: Condition, **more: Any) -> AppStatus:
    at = [msgspec.structs.replace(each, last_transition_time=OLD) for each in conditions]
    return AppStatus(conditions=tuple(at), **more)


def test_generations_are_filled_in_where_they_are_not_said() -> None:
    desired = AppStatus(conditions=(cond(), cond("Other", observed_generation=3)))
    done = completed(desired, None, generation=7, now=NOW)
    assert done.observed_generation == 7
    assert [each.observed_generation for each in done.conditions] == [7, 3]
    assert completed(AppStatus(observed_generation=5), None, generation=7, now=NOW).observed_generation == 5


@pytest.mark.parametrize(
    ("former", "new", "time"),
    [
        (None, cond(), NOW),
        (cond(), cond(), OLD),
        (cond(), cond(reason="Another", message="words", observed_generation=9), OLD),
        (cond(), cond(status="False"), NOW),
        (cond(status="Unknown"), cond(status="False"), NOW),
        (cond("Other"), cond(), NOW),
    ],
)
def test_the_transition_time_changes_with_the_status_only(
    former: Condition | None, new: Condition, time: str
) -> None:
    live = there(*([former] if former else []))
    (done,) = completed(AppStatus(conditions=(new,)), live, generation=1, now=NOW).conditions
    assert done.last_transition_time == time


def test_a_carried_condition_stays_as_it_is_unless_another_of_its_type_is_stated() -> None:
    (carried,) = there(cond("Ready", "False")).conditions
    live = there(carried)
    assert completed(AppStatus(), live, generation=1, now=NOW, carried=carried).conditions == (
        msgspec.structs.replace(carried, observed_generation=1),
    )
    (stated,) = completed(
        AppStatus(conditions=(cond(),)), live, generation=1, now=NOW, carried=carried
    ).conditions
    assert stated.status == "True"


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        ((cond(reason=""),), "reason '' is not one CamelCase word"),
        ((cond(reason="two words"),), "reason 'two words'"),
        ((cond(status="true"),), "status 'true' is not True, False or Unknown"),
        ((cond(type=""),), "condition type ''"),
        ((cond(), cond(status="False")), "two conditions of type Ready"),
    ],
)
def test_what_no_schema_takes_is_refused_before_it_is_sent(
    conditions: tuple[Condition, ...], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        completed(AppStatus(conditions=conditions), None, generation=1, now=NOW)


def test_a_message_that_is_too_long_is_cut_and_shows_it() -> None:
    desired = AppStatus(conditions=(cond(message="x" * 40_000),))
    (done,) = completed(desired, None, generation=1, now=NOW).conditions
    assert len(done.message) == 32_768
    assert done.message.endswith("...")


TYPES = st.lists(st.sampled_from("ABCD"), unique=True).map(lambda types: tuple(map(cond, types)))
STATUSES = st.builds(
    AppStatus,
    observed_generation=st.integers(0, 2),
    url=st.sampled_from([None, "a", "b"]),
    parts=st.none() | st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
    conditions=TYPES,
)


@given(STATUSES, st.none() | STATUSES)
def test_once_stated_it_stays_stated_and_nobody_elses_is_lost(
    desired: AppStatus, live: AppStatus | None
) -> None:
    target = stating(desired, live)
    assert stating(desired, target) is target
    assert {each.type: each for each in desired.conditions}.items() <= {
        each.type: each for each in target.conditions
    }.items()
    assert desired.url in (None, target.url)
    if live is not None:
        assert {each.type for each in live.conditions} <= {each.type for each in target.conditions}
        assert target.url == (desired.url or live.url)


@given(STATUSES, STATUSES)
def test_nothing_is_left_out_exactly_when_all_that_is_there_is_said(said: AppStatus, live: AppStatus) -> None:
    target = stating(said, live)
    more = leaves_out(msgspec.to_builtins(said), msgspec.to_builtins(target))
    assert more == (
        (said.url is None and target.url is not None)
        or (said.parts is None and target.parts is not None)
        or {each.type for each in target.conditions} != {each.type for each in said.conditions}
    )


class Loose(KubeObject, group="example.com", version="v1"):
    status: Mapping[str, Any] | None = None


class Bare(KubeObject, group="example.com", version="v1"):
    pass


class App(KubeObject, group="example.com", version="v1"):
    status: AppStatus = field(default_factory=AppStatus)


class Optional(KubeObject, group="example.com", version="v1"):
    status: AppStatus | None = None


@pytest.mark.parametrize(("type_", "has"), [(App, True), (Optional, True), (Loose, False), (Bare, False)])
def test_it_is_known_which_classes_have_conditions(type_: type[KubeObject], has: bool) -> None:
    assert has_conditions(type_) is has
