"""How long an elected instance tries what it cannot do before another one leads."""

from __future__ import annotations

import math

import pytest

from kubeshard.sharder.in_manager import PATIENCE, Patience

H, FIRST = True, PATIENCE.initial


@pytest.mark.parametrize(
    ("looks", "gives_up_at"),
    [
        ([(0, H), (FIRST - 1, H), (FIRST, H)], FIRST),
        ([(0, H), (FIRST - 1, not H), (FIRST, H), (3 * FIRST - 1, H), (3 * FIRST, H)], 3 * FIRST),
        ([(0, not H), (100, not H)], math.inf),
        ([(0, H), (5000, not H), (5000, H), (5000 + FIRST, H)], 5000 + FIRST),
    ],
    ids=[
        "in time",
        "doubled after an interruption",
        "nothing hinders",
        "the first one again after a quiet time",
    ],
)
def test_an_instance_that_cannot_work_leads_until_its_patience_is_exhausted(
    looks: list[tuple[float, bool]], gives_up_at: float
) -> None:
    patience = Patience()
    gave_up = [at for at, hindered in looks if patience.exhausted(at, hindered=hindered)]
    assert gave_up == ([gives_up_at] if gives_up_at < math.inf else [])
    assert patience.defers_until == (gives_up_at + PATIENCE.reset_after if gave_up else -math.inf)


def test_it_has_twice_as_much_in_each_term_up_to_the_longest() -> None:
    patience, now, waits = Patience(), 0.0, list[float]()
    for _ in range(9):
        patience.leads()
        assert not patience.exhausted(now, hindered=True)
        waits.append(patience.ends_at - now)
        now = patience.ends_at
        assert patience.exhausted(now, hindered=True)
    assert waits == [min(FIRST * 2**term, PATIENCE.cap) for term in range(9)]
