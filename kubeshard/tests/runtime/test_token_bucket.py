"""One bucket for every rate: bursts, refills, and returned tokens."""

from __future__ import annotations

import asyncio

import pytest

from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.token_bucket import TokenBucket
from kubeshard_lab.virtual_time import VirtualClock, virtual_time


@virtual_time
async def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=10, burst=3, clock=VirtualClock())
    assert [bucket.take() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])


@virtual_time
async def test_a_bucket_refills_with_time_up_to_its_burst() -> None:
    bucket = TokenBucket(rate=10, burst=3, clock=VirtualClock())
    for _ in range(3):
        assert bucket.try_take()
    assert not bucket.try_take()
    await asyncio.sleep(0.1)
    assert bucket.try_take()
    assert not bucket.try_take()
    await asyncio.sleep(3600)
    assert [bucket.try_take() for _ in range(4)] == [True, True, True, False]


@virtual_time
async def test_a_bucket_never_exceeds_burst_plus_rate() -> None:
    bucket = TokenBucket(rate=5, burst=10, clock=VirtualClock())
    taken = 0
    for _ in range(100):
        taken += sum(bucket.try_take() for _ in range(20))
        await asyncio.sleep(0.07)
    assert taken <= 10 + 5 * 100 * 0.07


@virtual_time
async def test_a_token_that_is_given_back_delays_nobody() -> None:
    bucket = TokenBucket(rate=10, burst=1, clock=VirtualClock())
    bucket.take()
    waits = [bucket.take(), bucket.take()]
    bucket.give_back()
    assert [*waits, bucket.take()] == pytest.approx([0.1, 0.2, 0.2])


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_rate_that_lets_nothing_through_is_refused(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="needs a positive rate"):
        TokenBucket(rate, burst, clock=SystemClock())
