"""Durations that cannot work are rejected."""

from __future__ import annotations

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard.leases.timing import Timing


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"lease_duration": 10.0}, "must be shorter than the lease duration 10s"),
        ({"lease_duration": 15.5}, "counts whole seconds"),
        ({"lease_duration": 0.0}, "at least 1s"),
        ({"renew_deadline": 2.4}, "longer than 1.2 retry periods"),
        ({"renew_deadline": 4.0}, "no time for a second attempt"),
        ({"retry_period": 0.0}, "must be positive"),
        ({"cancel_margin": 3.0}, "no time for a second attempt"),
    ],
)
def test_numbers_that_cannot_work_are_refused(numbers: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Timing(**numbers)  # type: ignore[arg-type]  # the table holds floats only
