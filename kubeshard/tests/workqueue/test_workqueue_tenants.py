"""A turn for each tenant: how tenants are protected from each other."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core import Key
from kubeshard.workqueue import RoundRobin


def drained(order: RoundRobin[Key]) -> list[Key]:
    keys = []
    while True:
        try:
            keys.append(order.popleft())
        except IndexError:
            return keys


def test_a_namespace_with_10000_keys_does_not_starve_one_with_3() -> None:
    order: RoundRobin[Key] = RoundRobin()
    for number in range(10_000):
        order.append(Key("big", str(number)))
    small = [Key("small", str(number)) for number in range(3)]
    for key in small:
        order.append(key)
    handed_out = drained(order)
    assert [handed_out.index(key) for key in small] == [1, 3, 5]
    assert len(handed_out) == 10_003


def test_the_keys_of_a_tenant_keep_their_order() -> None:
    order: RoundRobin[Key] = RoundRobin()
    keys = [Key("a", "1"), Key("a", "2"), Key("b", "1"), Key("a", "3")]
    for key in keys:
        order.append(key)
    assert drained(order) == [Key("a", "1"), Key("b", "1"), Key("a", "2"), Key("a", "3")]


def test_a_tenant_that_adds_again_and_again_gets_its_turn_and_no_more() -> None:
    order: RoundRobin[Key] = RoundRobin()
    greedy, others = Key("greedy", "x"), [Key(f"ns-{number}", "x") for number in range(5)]
    order.append(greedy)
    for key in others:
        order.append(key)
    seen = []
    for _ in range(7):
        seen.append(order.popleft())
        if seen[-1] == greedy:
            order.append(greedy)
    assert seen == [greedy, *others, greedy]


def test_tenants_that_come_and_go_do_not_keep_one_with_many_keys_waiting() -> None:
    """New namespaces keep coming, half as fast as keys are processed: the other half remains for the big tenant."""
    order: RoundRobin[Key] = RoundRobin()
    for number in range(100):
        order.append(Key("big", str(number)))
    seen: Counter[bool] = Counter()
    for number in range(50):
        order.append(Key(f"new-{number}", "x"))
        for _ in range(2):
            seen[order.popleft().namespace == "big"] += 1
    assert seen == {True: 50, False: 50}


def test_any_function_of_the_key_tells_tenants() -> None:
    order = RoundRobin[Key](lambda key: key.name.partition("-")[0])
    keys = [Key("one", "acme-1"), Key("two", "acme-2"), Key("one", "zeta-1")]
    for key in keys:
        order.append(key)
    assert drained(order) == [keys[0], keys[2], keys[1]]


@pytest.mark.parametrize("tenant", [lambda key: 1 / 0, lambda key: [key]], ids=["raises", "unhashable"])
def test_keys_without_a_tenant_are_kept_and_that_is_said_once(
    tenant: object, caplog: pytest.LogCaptureFixture
) -> None:
    order: RoundRobin[Key] = RoundRobin(tenant)  # type: ignore[arg-type]
    keys = [Key("ns", str(number)) for number in range(3)]
    with caplog.at_level(logging.ERROR):
        for key in keys:
            order.append(key)
    assert drained(order) == keys
    assert len(caplog.records) == 1


@given(st.lists(st.one_of(st.none(), st.integers(0, 3))))
def test_of_the_tenants_that_wait_none_gets_two_turns_before_another_gets_one(
    steps: list[int | None],
) -> None:
    """None: a key is taken; a number: that tenant adds one."""
    order: RoundRobin[Key] = RoundRobin()
    waiting: Counter[str] = Counter()
    turns_while_waiting: dict[str, Counter[str]] = {}
    for number, step in enumerate(steps):
        if step is not None:
            tenant = str(step)
            if not waiting[tenant]:
                turns_while_waiting[tenant] = Counter()
            waiting[tenant] += 1
            order.append(Key(tenant, str(number)))
        elif sum(waiting.values()):
            served = order.popleft().namespace
            waiting[served] -= 1
            turns_while_waiting[served] = Counter()
            for tenant, turns in turns_while_waiting.items():
                if waiting[tenant] and tenant != served:
                    turns[served] += 1
                    assert turns[served] <= 1
