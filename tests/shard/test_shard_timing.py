"""The numbers of a shard's Lease keep their promise or are refused (reliability 1.5, 4.5)."""

from __future__ import annotations

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard.shard.incarnation import Incarnation
from kubeshard.shard.timing import LeaseTiming, scaled


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lease_duration": 5.0, "renew_deadline": 4.5}, "shorter than three renew intervals of 2s"),
        ({"lease_duration": 15.5}, "counts whole seconds"),
        ({"lease_duration": 301.0}, "not within 3s and 300s"),
        ({"lease_duration": 1.0}, "not within 3s and 300s"),
        ({"renew_deadline": 15.0}, "must be shorter than the lease duration"),
        ({"renew_deadline": 4.0}, "no time for a second attempt"),
        ({"renew_interval": 0.0}, "must be positive"),
        ({"request_bound": 20.0}, "a sharder takes over after 30s"),
    ],
)
def test_numbers_that_break_the_promise_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LeaseTiming(**change)  # type: ignore[arg-type]  # the table holds floats only


@pytest.mark.parametrize("duration", [3.0, 6.0, 15.0, 60.0, 300.0])
def test_every_allowed_duration_scales_to_a_sound_table(duration: float) -> None:
    timing = scaled(duration)
    assert (timing.renew_deadline + timing.request_bound) * (4 / 3) <= 2 * duration * (2 / 3) + 1e-9


def test_only_a_container_of_the_same_pod_is_known_to_have_ended() -> None:
    me = Incarnation("pod-1", "boot", "x")
    assert me.outlived("pod-1/boot/w")
    assert not me.outlived("pod-2/boot/w")
    assert not Incarnation("", "boot", "x").outlived("/boot/w")
