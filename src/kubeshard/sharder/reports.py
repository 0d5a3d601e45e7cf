"""What is known about a ring besides its shards, and how people are told: conditions (reliability 4.1,
protocol 14.5).

The controllers of one sharder note their findings here; the ring controller writes them. Guaranteed:
`Ready` keeps the reference's meaning; every other condition is there only while there is something to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kubeshard.core.conditions import Condition
from kubeshard.core.kinds import GroupResource
from kubeshard.sharding.api import READY
from kubeshard.sharding.classification import RingResources
from kubeshard.sharding.leases import Shard, duplicates

CONFLICT = "Conflict"
RESOURCES_ACCEPTED = "ResourcesAccepted"
RESOURCES_RESOLVED = "ResourcesResolved"
PERMITTED = "Permitted"
SELECTOR_VALID = "SelectorValid"
SYSTEM_NAMESPACES_EXCLUDED = "SystemNamespacesExcluded"
SHARDS_ACCEPTED = "ShardsAccepted"
DRAIN_STUCK = "DrainStuck"

OWN_CONDITIONS = frozenset(
    {
        CONFLICT,
        RESOURCES_ACCEPTED,
        RESOURCES_RESOLVED,
        PERMITTED,
        SELECTOR_VALID,
        SYSTEM_NAMESPACES_EXCLUDED,
        SHARDS_ACCEPTED,
        DRAIN_STUCK,
    }
)

MAX_MESSAGE = 1024
"""Characters of a condition's message."""

DRAIN_STUCK_AFTER = 60.0
"""Seconds after which a drain that nobody acknowledged is worth a person's attention."""


@dataclass(slots=True)
class RingReport:
    """Findings about one ring: problem text per resource, missing verbs, pending drains."""

    unresolved: dict[GroupResource, str] = field(default_factory=dict)
    missing_verbs: dict[GroupResource, set[str]] = field(default_factory=dict)
    selector_problem: str = ""
    system_namespaces: tuple[str, ...] = ()
    """That the ring selects."""
    stuck_drains: int = 0


class RingReports:
    """The reports of all rings. `changed` is called with a ring's name when its conditions may be out of
    date.
    """

    def __init__(self) -> None:
        self._reports: dict[str, RingReport] = {}
        self._listener: Callable[[str], None] = lambda _: None

    def listen(self, changed: Callable[[str], None]) -> None:
        self._listener = changed

    def of(self, ring: str) -> RingReport:
        return self._reports.setdefault(ring, RingReport())

    def forget(self, ring: str) -> None:
        self._reports.pop(ring, None)

    def keep(self, ring: str, resources: Collection[GroupResource]) -> None:
        """The ring has these resources only."""
        if (report := self._reports.get(ring)) is not None:
            report.unresolved = {r: text for r, text in report.unresolved.items() if r in resources}
            report.missing_verbs = {r: verbs for r, verbs in report.missing_verbs.items() if r in resources}

    def resolved(self, ring: str, resource: GroupResource, problem: str = "") -> None:
        """A resource could be found and read, or why not."""
        report = self.of(ring)
        if report.unresolved.get(resource, "") != problem:
            if problem:
                report.unresolved[resource] = problem
            else:
                del report.unresolved[resource]
            self._listener(ring)

    def permitted(self, ring: str, resource: GroupResource, verb: str, allowed: bool) -> None:
        """A request with this verb was allowed or forbidden."""
        missing = self.of(ring).missing_verbs.get(resource, set())
        if (verb in missing) is not allowed:
            return
        if allowed:
            missing.discard(verb)
            if not missing:
                del self.of(ring).missing_verbs[resource]
        else:
            self.of(ring).missing_verbs.setdefault(resource, set()).add(verb)
        self._listener(ring)

    def selector(self, ring: str, problem: str = "") -> None:
        report = self.of(ring)
        if report.selector_problem != problem:
            report.selector_problem = problem
            self._listener(ring)

    def system_namespaces(self, ring: str, selected: tuple[str, ...]) -> None:
        report = self.of(ring)
        if report.system_namespaces != selected:
            report.system_namespaces = selected
            self._listener(ring)

    def drains(self, ring: str, stuck: int) -> None:
        report = self.of(ring)
        if report.stuck_drains != stuck:
            report.stuck_drains = stuck
            self._listener(ring)


def findings(
    report: RingReport, resources: RingResources, shards: list[Shard], *, max_shards: int
) -> list[Condition]:
    """The conditions besides Ready that apply now, without times. What was found of resources that the ring
    no longer has does not count.
    """
    refused = [problem.message for problem in resources.problems if not problem.conflict]
    conflicts = [problem.message for problem in resources.problems if problem.conflict]
    candidates = [
        (CONFLICT, "True", "ResourceConflict", "; ".join(conflicts)),
        (RESOURCES_ACCEPTED, "False", "ResourcesRefused", "; ".join(refused)),
        (RESOURCES_RESOLVED, "False", "ResourcesUnresolved", _unresolved(report, resources)),
        (PERMITTED, "False", "PermissionMissing", _permissions(report, resources)),
        (SELECTOR_VALID, "False", "InvalidSelector", report.selector_problem),
        (SYSTEM_NAMESPACES_EXCLUDED, "False", "SystemNamespacesSelected", _system_namespaces(report)),
        (SHARDS_ACCEPTED, "False", "ShardsRefused", "; ".join(shard_problems(shards, max_shards))),
        (DRAIN_STUCK, "True", "DrainNotAcknowledged", _stuck(report)),
    ]
    return [
        Condition(type=type_, status=status, reason=reason, message=shortened(message))
        for type_, status, reason, message in candidates
        if message
    ]


def with_findings(conditions: tuple[Condition, ...], found: list[Condition]) -> tuple[Condition, ...]:
    """Former conditions without those of this module that no longer apply; foreign ones and Ready stay."""
    current = {condition.type for condition in found}
    return tuple(
        c for c in conditions if c.type == READY or c.type not in OWN_CONDITIONS or c.type in current
    )


def shard_problems(shards: list[Shard], max_shards: int) -> list[str]:
    """Why Leases of a ring are not, or not one by one, members (protocol 14-A13, A13b; reliability 4.2)."""
    problems = [
        f"shard {name!r} has Leases in several namespaces ({', '.join(key.namespace for key in keys)})"
        for name, keys in sorted(duplicates(shards).items())
    ]
    problems += [
        f"{shard.key} is left out: its name is no label value" for shard in shards if not shard.valid
    ]
    if (count := sum(shard.valid and shard.state.available for shard in shards)) > max_shards:
        problems.append(f"{count} shards are available, only the {max_shards} oldest take part")
    return problems[:10]


def shortened(message: str) -> str:
    """At most as long as people read: the API server refuses a whole status for one condition that is too
    long.
    """
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def _unresolved(report: RingReport, resources: RingResources) -> str:
    return "; ".join(
        f"{resource}: {problem}"
        for resource, problem in sorted(report.unresolved.items(), key=str)
        if resource in resources
    )


def _permissions(report: RingReport, resources: RingResources) -> str:
    return "; ".join(
        f'the sharder needs the rule {{apiGroups: ["{resource.group}"], resources: ["{resource.resource}"],'
        f" verbs: [{', '.join(sorted(verbs))}]}}"
        for resource, verbs in sorted(report.missing_verbs.items(), key=str)
        if resource in resources
    )


def _system_namespaces(report: RingReport) -> str:
    if not report.system_namespaces:
        return ""
    return f"the ring's namespaceSelector selects {', '.join(report.system_namespaces)}"


def _stuck(report: RingReport) -> str:
    if not report.stuck_drains:
        return ""
    return (
        f"{report.stuck_drains} objects carry the drain label for more than {DRAIN_STUCK_AFTER:.0f} s:"
        " their shards run, but do not let go"
    )
