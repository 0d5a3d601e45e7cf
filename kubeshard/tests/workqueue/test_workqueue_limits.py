from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.runtime.clock import SystemClock
from kubeshard.workqueue.limits import FastSlow, ItemExponential, Limiter, MaxOf, MaxWait, OverallRate
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import SeededRng


def delays(limiter: Limiter, key: str, times: int) -> list[float]:
    return [limiter.when(key) for _ in range(times)]


def test_each_retry_of_a_key_doubles_its_delay_up_to_the_cap() -> None:
    limiter = ItemExponential(0.5, 5.0, jitter=0, rng=SeededRng(1))
    assert delays(limiter, "a", 6) == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_keys_back_off_independently() -> None:
    limiter = ItemExponential(1.0, 60.0, jitter=0, rng=SeededRng(1))
    delays(limiter, "a", 4)
    assert limiter.when("b") == 1.0
    assert (limiter.retries("a"), limiter.retries("b"), limiter.retries("c")) == (4, 1, 0)


def test_forgetting_a_key_resets_its_delay_and_retries() -> None:
    limiter = ItemExponential(1.0, 60.0, jitter=0, rng=SeededRng(1))
    delays(limiter, "a", 4)
    limiter.forget("a")
    assert limiter.retries("a") == 0
    assert limiter.when("a") == 1.0


def test_any_number_of_failures_stays_at_the_cap() -> None:
    limiter = ItemExponential(0.2, 60.0, jitter=0, rng=SeededRng(1))
    assert delays(limiter, "a", 3000)[-1] == 60.0


@given(st.integers(1, 40), st.floats(0, 1))
def test_jitter_adds_at_most_its_share_to_every_delay(failures: int, jitter: float) -> None:
    plain = delays(ItemExponential(0.2, 60.0, jitter=0, rng=SeededRng(1)), "a", failures)
    jittered = delays(ItemExponential(0.2, 60.0, jitter=jitter, rng=SeededRng(1)), "a", failures)
    assert all(a <= b <= a * (1 + jitter) + 1e-9 for a, b in zip(plain, jittered, strict=True))


def test_the_default_is_between_a_fifth_of_a_second_and_two_minutes() -> None:
    many = delays(ItemExponential(rng=SeededRng(1)), "a", 30)
    assert 0.2 <= many[0] <= 0.4
    assert 60 <= many[-1] <= 120


@virtual_time
async def test_an_overall_rate_lets_a_burst_through_and_then_its_rate_whatever_the_keys() -> None:
    rate = OverallRate(rate=10, burst=3, clock=VirtualClock())
    assert [rate.when(key) for key in "abcde"] == pytest.approx([0, 0, 0, 0.1, 0.2])


def test_fast_tries_come_first_and_slow_ones_after() -> None:
    limiter = FastSlow(0.1, 10, fast_tries=2)
    assert delays(limiter, "a", 4) == [0.1, 0.1, 10, 10]
    limiter.forget("a")
    assert limiter.when("a") == 0.1
    assert limiter.retries("a") == 1


def test_the_longest_of_several_delays_wins() -> None:
    limiter = MaxOf(ItemExponential(1.0, 60.0, jitter=0, rng=SeededRng(1)), FastSlow(3, 20, fast_tries=3))
    assert delays(limiter, "a", 6) == [3, 3, 4, 20, 20, 32]
    assert limiter.retries("a") == 6
    limiter.forget("a")
    assert limiter.retries("a") == 0


def test_a_maximum_wait_caps_any_limiter() -> None:
    limiter = MaxWait(ItemExponential(1.0, 60.0, jitter=0, rng=SeededRng(1)), cap=5)
    assert delays(limiter, "a", 5) == [1, 2, 4, 5, 5]
    assert limiter.retries("a") == 5
    limiter.forget("a")
    assert limiter.when("a") == 1


def test_nonsensical_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="base"):
        ItemExponential(10, 1, rng=SeededRng(1))
    with pytest.raises(ValueError, match="rate"):
        OverallRate(rate=0, clock=SystemClock())
