"""What happens repeatedly is said once, on change, or every so many seconds, with a count."""

from __future__ import annotations

import math

import pytest

from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.notices import Notices


class Time(SystemClock):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


ONCE, EVERY_TEN = math.inf, 10.0


@pytest.mark.parametrize(
    ("every", "mentions"),
    [
        pytest.param(ONCE, [(0, "a", 0), (1, "a", None), (1e9, "a", None)], id="once"),
        pytest.param(ONCE, [(0, "a", 0), (1, "a", None), (2, "b", 1), (3, "a", 0)], id="on change"),
        pytest.param(EVERY_TEN, [(0, "a", 0), (9.9, "a", None), (10, "a", 1)], id="every ten seconds"),
        pytest.param(EVERY_TEN, [(0, "a", 0), (30, "a", 0), (39, "a", None), (40, "a", 1)], id="after a gap"),
        pytest.param(EVERY_TEN, [(0, "a", 0), *[(1, "a", None)] * 5, (10, "a", 5)], id="with the count"),
        pytest.param(
            EVERY_TEN, [(0, "a", 0), (4, "b", 0), (10, "b", None), (14, "b", 1)], id="a change counts anew"
        ),
    ],
)
def test_a_topic_is_passed_on_when_it_is_news(
    every: float, mentions: list[tuple[float, str, int | None]]
) -> None:
    clock = Time()
    notices = Notices(clock, every=every)
    for clock.now, state, held_back in mentions:
        assert notices.held_back("topic", state) == held_back, clock.now


@pytest.mark.parametrize(
    ("mentions", "expected"),
    [
        pytest.param([0, 59, 60], [None, None, 2], id="it lasts"),
        pytest.param([0, 75, 76], [None, 1, None], id="it comes again later"),
        pytest.param([0], [None], id="it passes"),
    ],
)
def test_a_topic_can_be_held_back_until_it_lasts(mentions: list[float], expected: list[int | None]) -> None:
    clock = Time()
    notices = Notices(clock)
    for clock.now, held_back in zip(mentions, expected, strict=True):
        assert notices.held_back("topic", after=60.0) == held_back


def test_topics_are_independent_and_need_no_clock_to_be_said_once() -> None:
    notices = Notices()
    assert [notices.due(topic) for topic in ("a", "b", "a", ("a", 1), "b")] == [
        True,
        True,
        False,
        True,
        False,
    ]


def test_the_end_of_a_topic_is_news_only_if_the_topic_was_passed_on() -> None:
    notices = Notices(Time())
    assert not notices.resolved("topic")
    assert not notices.due("topic", after=1.0)
    assert not notices.resolved("topic")
    assert notices.due("topic")
    assert notices.resolved("topic")
    assert not notices.resolved("topic")
    assert notices.due("topic"), "it is new again"
    notices.clear()
    assert notices.due("topic")


def test_all_topics_but_the_current_ones_are_resolved_together() -> None:
    notices = Notices(Time())
    assert notices.due("a")
    assert notices.due("b")
    assert not notices.due("c", after=1.0)
    assert notices.keep({"a", "d"}) == ["b"]
    assert not notices.due("a")
    assert notices.due("b")


def test_memory_is_bounded_and_the_least_recently_mentioned_topic_is_forgotten() -> None:
    notices = Notices(most=3)
    assert all(notices.due(topic) for topic in "abc")
    assert not notices.due("a")
    assert notices.due("d")
    assert len(notices) == 3
    assert not notices.due("a")
    assert notices.due("b"), "forgotten, not a"
