"""Pauses between attempts grow, are jittered, and begin anew after a quiet time."""

from __future__ import annotations

import random

import pytest

from kubeshard.runtime.backoff import Backoff, BackoffPolicy

DOUBLING = BackoffPolicy(initial=1.0, cap=10.0, jitter=0.0, reset_after=60.0)


@pytest.mark.parametrize(
    ("failures", "pauses"),
    [
        pytest.param([0, 1, 3, 7, 15, 25], [1, 2, 4, 8, 10, 10], id="doubling up to the cap"),
        pytest.param([0, 1, 61, 121.5], [1, 2, 4, 1], id="anew after a quiet time"),
    ],
)
def test_pauses_grow_and_begin_anew(failures: list[float], pauses: list[float]) -> None:
    backoff = Backoff(DOUBLING)
    assert [backoff.failed(now) for now in failures] == pauses


def test_a_success_can_be_told() -> None:
    backoff = Backoff(DOUBLING)
    assert [backoff.failed(0), backoff.failed(1)] == [1, 2]
    backoff.reset()
    assert backoff.failed(2) == 1


def test_jitter_lengthens_a_pause_by_a_share_of_it_and_needs_randomness() -> None:
    policy = DOUBLING._replace(jitter=0.5)
    backoff = Backoff(policy, random.Random(1))
    assert 1 < backoff.failed(0) < 1.5
    assert 2 < backoff.failed(0) < 3
    with pytest.raises(ValueError, match="needs randomness"):
        Backoff(policy)
