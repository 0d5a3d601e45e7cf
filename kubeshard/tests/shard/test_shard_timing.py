"""The durations of a shard's Lease keep the protocol's promise, or are rejected."""

from __future__ import annotations

import pytest

from kubeshard.client.requests import server_timeout
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.transport import UNDELIVERED
from kubeshard.shard.timing import LeaseTiming, scaled


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lease_duration": 5.0, "renew_deadline": 4.5}, "shorter than three retry periods of 2s"),
        ({"lease_duration": 15.5}, "counts whole seconds"),
        ({"lease_duration": 61.0}, "not within 3s and 60s"),
        ({"lease_duration": 1.0}, "not within 3s and 60s"),
        ({"renew_deadline": 15.0}, "must be shorter than the lease duration"),
        ({"renew_deadline": 4.0}, "no time for a second attempt"),
        ({"retry_period": 0.0}, "must be positive"),
        ({"request_bound": 15.5}, "a write may end 30s .* a sharder takes over after 30s"),
    ],
)
def test_numbers_that_break_the_promise_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LeaseTiming(**change)  # type: ignore[arg-type]  # the table holds floats only


@pytest.mark.regression
@pytest.mark.parametrize("duration", [*map(float, range(4, 61))])
def test_every_scaled_table_counts_what_the_kernel_delivers_of_a_dead_process(duration: float) -> None:
    timing = scaled(duration)
    server = float(str(server_timeout(timing.request_bound)).removesuffix("s"))
    assert timing.last_write == timing.renew_deadline + UNDELIVERED + server
    rate = 2 * duration / timing.last_write
    assert rate > (1.5 if duration >= 15 else 4 / 3 if duration >= 10 else 1)


def test_a_lease_too_short_for_what_the_kernel_delivers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"lease duration 3s: a write may end 7s .* after 6s"):
        scaled(3)
