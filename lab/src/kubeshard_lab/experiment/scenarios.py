"""The scenarios: which load, on how many objects, and what goes wrong meanwhile. Data only.

The rates of `basic`, `scale-out`, `chaos` and `rolling-update`, and those of `base`, are those of the two evaluations
that the Go project published; the others are situations that operators fear.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

Disturbance = Literal["none", "kill", "crash", "roll", "outage", "flap"]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Rates are per second, and times are in seconds after the load began."""

    name: str
    summary: str
    duration: float = 900.0
    themes: int = 50
    projects: int = 20
    existing: int = 0
    """Objects that exist before the load begins."""
    cold: bool = False
    """The programs start when the load begins, and find all objects; it ends once all are ready."""
    create: float = 0.0
    creating: float = 1.0
    """The part of the duration in which objects are created and deleted."""
    delete: float = 0.0
    change_every: float = 0.0
    """How often each object changes: that long after its creation, and so on; 0 is never."""
    changes_at_most: float = math.inf
    """Changes per second."""
    changes_spec: bool = True
    """Otherwise an annotation changes, which causes a reconcile but is no new generation."""
    theme_every: float = 0.0
    """How often a Theme changes, which causes a reconcile of all Websites that use it."""
    storm_every: float = 0.0
    storm_within: float = 10.0
    """How long a storm takes: in this time every object changes once."""
    disturbance: Disturbance = "none"
    disturbed_every: float = 300.0


def scaled(scenario: Scenario, scale: float, duration: float | None) -> Scenario:
    """The scenario with its rates and its number of existing objects times `scale`. Another duration changes the time
    between disturbances (but for those of `flapping`) and between storms in proportion, so that as many happen.
    """
    stretch = 1.0 if duration is None else duration / scenario.duration
    flapping = scenario.disturbance == "flap"
    return msgspec.structs.replace(
        scenario,
        duration=scenario.duration * stretch,
        existing=math.ceil(scenario.existing * scale),
        create=scenario.create * scale,
        delete=scenario.delete * scale,
        changes_at_most=scenario.changes_at_most * scale,
        storm_every=scenario.storm_every * stretch,
        storm_within=min(scenario.storm_within, scenario.storm_every * stretch / 3),
        disturbed_every=scenario.disturbed_every * (1.0 if flapping else stretch),
    )


_ALL = (
    Scenario(
        name="basic",
        summary="12 creates/s, 2 deletes/s, each object changes once a minute: 9000 objects, 155 changes/s",
        create=12,
        delete=2,
        change_every=60,
    ),
    Scenario(
        name="scale-out",
        summary="10 creates/s, each object changes every 30 s: until the instances are too few",
        create=10,
        change_every=30,
    ),
    Scenario(
        name="chaos",
        summary="5 creates/s, each object changes every 2 min; every 5 min an instance is deleted and replaced",
        create=5,
        change_every=120,
        disturbance="kill",
    ),
    Scenario(
        name="crash",
        summary="the load of chaos; every 5 min an instance is killed and replaced",
        create=5,
        change_every=120,
        disturbance="crash",
    ),
    Scenario(
        name="rolling-update",
        summary="the load of basic; every 5 min all instances are replaced, one after the other",
        create=12,
        delete=2,
        change_every=60,
        disturbance="roll",
    ),
    Scenario(
        name="base",
        summary="the first generation's: 14 creates/s and 1 delete/s for 10 of 15 min, each object reconciled once a "
        "minute (at most 100/s), a theme changed once a minute",
        create=14,
        delete=1,
        creating=2 / 3,
        change_every=60,
        changes_at_most=100,
        changes_spec=False,
        theme_every=60,
    ),
    Scenario(
        name="storm",
        summary="3000 objects, which all change within 10 s, every 5 min",
        existing=3000,
        storm_every=300,
    ),
    Scenario(
        name="cold-start",
        summary="100 000 objects exist when operator and sharder start; until all are ready",
        existing=100_000,
        cold=True,
    ),
    Scenario(
        name="webhook-outage",
        summary="the load of basic at half the rate; no sharder runs for one minute of every five (external only)",
        create=6,
        delete=1,
        change_every=60,
        disturbance="outage",
    ),
    Scenario(
        name="flapping",
        summary="5 creates/s, each object changes once a minute; one instance more joins and leaves every 10 s",
        create=5,
        change_every=60,
        disturbance="flap",
        disturbed_every=10,
    ),
)

SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
