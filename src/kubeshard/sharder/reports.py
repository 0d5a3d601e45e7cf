"""The state of a ring other than its shards, reported to people as conditions.

The controllers record findings in the ring's report; the ring controller writes them. Guaranteed:
`Ready` keeps the reference's meaning; every other condition exists only while there is something to report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kubeshard.core.conditions import Condition, shortened
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
"""Seconds after which a drain without acknowledgement needs attention."""


class RingReport:
    """Findings about one ring. `changed` is called when its conditions may be out of date."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self.unresolved: dict[GroupResource, str] = {}
        """Why a resource could not be found or read."""
        self.missing_verbs: dict[GroupResource, set[str]] = {}
        self.selector_problem = ""
        self.selected_system_namespaces: tuple[str, ...] = ()
        self.stuck_drains = 0

    def keep(self, resources: Collection[GroupResource]) -> None:
        """The ring has these resources only."""
        self.unresolved = {r: text for r, text in self.unresolved.items() if r in resources}
        self.missing_verbs = {r: verbs for r, verbs in self.missing_verbs.items() if r in resources}

    def end(self) -> None:
        """The report is no longer read."""
        self._changed = lambda: None

    def resolved(self, resource: GroupResource, problem: str = "") -> None:
        """A resource could be found and read, or why not."""
        if self.unresolved.get(resource, "") != problem:
            if problem:
                self.unresolved[resource] = problem
            else:
                del self.unresolved[resource]
            self._changed()

    def permitted(self, resource: GroupResource, verb: str, allowed: bool) -> None:
        """A request with this verb was allowed or forbidden."""
        missing = self.missing_verbs.get(resource, set())
        if (verb in missing) is not allowed:
            return
        self.missing_verbs[resource] = missing ^ {verb}
        if not self.missing_verbs[resource]:
            del self.missing_verbs[resource]
        self._changed()

    def selector(self, problem: str = "") -> None:
        if self.selector_problem != problem:
            self.selector_problem = problem
            self._changed()

    def system_namespaces(self, selected: tuple[str, ...]) -> None:
        if self.selected_system_namespaces != selected:
            self.selected_system_namespaces = selected
            self._changed()

    def drains(self, stuck: int) -> None:
        if self.stuck_drains != stuck:
            self.stuck_drains = stuck
            self._changed()


def findings(
    report: RingReport, resources: RingResources, shards: list[Shard], *, max_shards: int
) -> list[Condition]:
    """The conditions besides Ready that currently apply, without times. Findings about resources that the ring
    no longer has are ignored.
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
        Condition(type=type_, status=status, reason=reason, message=shortened(message, MAX_MESSAGE))
        for type_, status, reason, message in candidates
        if message
    ]


def with_findings(conditions: tuple[Condition, ...], found: list[Condition]) -> tuple[Condition, ...]:
    """The previous conditions without those of this module that no longer apply; foreign ones and Ready stay."""
    current = {condition.type for condition in found}
    return tuple(
        c for c in conditions if c.type == READY or c.type not in OWN_CONDITIONS or c.type in current
    )


def shard_problems(shards: list[Shard], max_shards: int) -> list[str]:
    """Why some Leases of a ring are not members, or not separate members."""
    problems = [
        f"shard {name!r} has Leases in several namespaces ({', '.join(key.namespace for key in keys)})"
        for name, keys in sorted(duplicates(shards).items())
    ]
    problems += [
        f"{shard.key} is left out: its name is not a label value" for shard in shards if not shard.valid
    ]
    if (count := sum(shard.valid and shard.state.available for shard in shards)) > max_shards:
        problems.append(f"{count} shards are available, only the {max_shards} oldest are used")
    return problems[:10]


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
    if not report.selected_system_namespaces:
        return ""
    return f"the ring's namespaceSelector selects {', '.join(report.selected_system_namespaces)}"


def _stuck(report: RingReport) -> str:
    if not report.stuck_drains:
        return ""
    return (
        f"{report.stuck_drains} objects carry the drain label for more than {DRAIN_STUCK_AFTER:.0f} s:"
        " their shards run, but do not release them"
    )
