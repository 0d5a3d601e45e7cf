"""Conditions that can be waited for, and how they combine."""

from __future__ import annotations

import pytest

from kubeshard.core import KubeObject, ObjectMeta, Struct, field, until
from kubeshard.core.conditions import Condition
from kubeshard.core.until import WaitCondition


class AppStatus(Struct):
    url: str = ""
    observed_generation: int | str | None = None
    conditions: tuple[Condition, ...] = ()


class App(KubeObject, group="example.com", version="v1"):
    status: AppStatus = field(default_factory=AppStatus)


class Bare(KubeObject, group="example.com", version="v1"):
    pass


def app(*conditions: Condition, uid: str = "1", **meta: object) -> App:
    metadata = ObjectMeta(name="a", uid=uid, generation=2, **meta)  # type: ignore[arg-type]
    return App(metadata=metadata, status=AppStatus(conditions=conditions))


def of_generation(generation: int | str, *conditions: Condition) -> App:
    """An App whose status says as a whole which generation it is about."""
    status = AppStatus(observed_generation=generation, conditions=conditions)
    return App(metadata=ObjectMeta(name="a", generation=2), status=status)


def synced(status: str = "True", generation: int = 0) -> Condition:
    return Condition(type="Synced", status=status, reason="Told", observed_generation=generation)


GOING = app(deletion_timestamp="2026-01-01T00:00:00Z")
READY = app(Condition(type="Ready", status="True"))
STALLED = app(Condition(type="Stalled", status="True"))


@pytest.mark.parametrize(
    ("condition", "obj", "met"),
    [
        (until.exists, app(), True),
        (until.exists, GOING, True),
        (until.exists, None, False),
        (until.deleted(), None, True),
        (until.deleted(), app(), False),
        (until.deleted(), GOING, False),
        (until.deleted("1"), app(uid="1"), False),
        (until.deleted("1"), app(uid="2"), True),
        (until.condition("Synced"), app(), False),
        (until.condition("Synced"), None, False),
        (until.condition("Synced"), app(synced()), True),
        (until.condition("Synced"), app(synced("False")), False),
        (until.condition("Synced", "False"), app(synced("False")), True),
        (until.condition("Synced"), app(synced(generation=1)), False),
        (until.condition("Synced"), app(synced(generation=2)), True),
        (until.condition("Synced"), of_generation(1, synced()), False),
        (until.condition("Synced"), of_generation(2, synced()), True),
        (until.condition("Synced"), of_generation(1, synced(generation=2)), True),
        (until.condition("Synced"), of_generation(2, synced(generation=1)), False),
        (until.condition("Synced"), of_generation("1", synced()), False),
        (until.condition("Synced"), of_generation("2", synced()), True),
        (until.condition("Synced"), of_generation("f00", synced()), True),
        (until.ready, READY, True),
        (until.ready, STALLED, False),
        (until.ready, None, False),
        (until.failed, STALLED, True),
        (until.failed, READY, False),
        (until.holds("has a URL", lambda app: bool(app.status.url)), app(), False),
        (until.holds("is there", lambda app: True), None, False),
    ],
)
def test_a_condition_is_met_by_what_it_says(condition: WaitCondition, obj: App | None, met: bool) -> None:
    assert condition.met(obj) is met
    assert (~condition).met(obj) is not met
    assert condition.seen(obj)


@pytest.mark.parametrize("one", [True, False])
@pytest.mark.parametrize("other", [True, False])
def test_conditions_combine_as_booleans(one: bool, other: bool) -> None:
    def const(value: bool) -> WaitCondition:
        return until.holds(str(value), lambda _: value)

    assert (const(one) & const(other)).met(app()) is (one and other)
    assert (const(one) | const(other)).met(app()) is (one or other)
    assert (~(const(one) & ~const(other))).met(app()) is not (one and not other)


def test_a_combination_says_what_it_waits_for_and_what_is_there_instead() -> None:
    both = until.condition("Synced") & ~until.deleted()
    assert both.text == "(Synced=True and not deleted)"
    assert both.seen(app(synced("False"))) == "Synced is False (Told); it is there"
    assert both.seen(None) == "there is no such object"


@pytest.mark.parametrize(
    "condition", [until.ready, until.failed, until.condition("Ready"), ~until.ready & until.exists]
)
def test_a_class_of_which_nothing_can_be_told_is_refused(condition: WaitCondition) -> None:
    condition.check(App)
    with pytest.raises(TypeError, match=r"Bare does not declare status.conditions"):
        condition.check(Bare)
