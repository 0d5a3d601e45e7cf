"""The sharder's rendered roles are sufficient and minimal: without any one right something is denied and reported."""

from __future__ import annotations

import pytest
from sharder_life import (
    FINALIZERS,
    OLD_EVENTS,
    OWN_REVIEW,
    Right,
    granted,
    live,
    manifests,
    refusals,
    without,
)
from tiers import further

from kubeshard_lab.virtual_time import virtual_time

RIGHTS = sorted(granted(manifests()) - {FINALIZERS})
QUICK = [Right("sim.example", "things", verb) for verb in ("get", "patch", "watch")]
"""The others are taken away in `make test-nightly`."""


@virtual_time
async def test_in_its_life_the_sharder_asks_for_what_its_roles_allow_and_for_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    life = await live(manifests())
    assert not life.refused
    assert life.allowed - {OWN_REVIEW} == set(RIGHTS)
    assert not [*refusals(caplog.records), *life.said]


@pytest.mark.parametrize(
    "right", [*QUICK, *further(*(right for right in RIGHTS if right not in QUICK))], ids=str
)
def test_without_any_one_right_the_sharder_says_what_it_is_refused(
    right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual_time
    async def scene() -> list[str]:
        life = await live(without(manifests(), right))
        assert right not in life.allowed
        assert life.refused - OLD_EVENTS <= {right}
        return life.said

    assert [*scene(), *refusals(caplog.records)]
