"""The state of a ring other than its shards, reported to people as conditions.

The controllers record findings in the ring's report; the ring controller writes them. Guaranteed: every condition
besides `Ready` exists only while there is something to report. A ring of which something is not sharded, because it is
refused or not permitted, is not `Ready`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from kubeshard.core.conditions import Condition, for_people
from kubeshard.core.kinds import GroupResource
from kubeshard.sharding.api import READY
from kubeshard.sharding.assignment import owns_some
from kubeshard.sharding.names import (
    OWNED_RANGES_ANNOTATION,
    SHARD_NAMESPACES_ANNOTATION,
    STRICT_HANDOVER_ANNOTATION,
    SYSTEM_NAMESPACES_ANNOTATION,
    UNRELEASED_ANNOTATION,
)
from kubeshard.sharding.ring_resources import RingResources
from kubeshard.sharding.shard_states import MAX_DURATION, MAX_SHARDS, Shard, duplicates
from kubeshard.sharding.waiting import MENTIONED, Objects, by_answer

K = TypeVar("K")
V = TypeVar("V")

CONFLICT = "Conflict"
RESOURCES_ACCEPTED = "ResourcesAccepted"
RESOURCES_RESOLVED = "ResourcesResolved"
PERMITTED = "Permitted"
SELECTOR_VALID = "SelectorValid"
NAMESPACES_ACCEPTED = "NamespacesAccepted"
SHARDS_ACCEPTED = "ShardsAccepted"
WEBHOOK_REACHED = "WebhookReached"
WEBHOOK_CONTESTED = "WebhookContested"
SEVERAL_SHARDERS = "SeveralSharders"
LEASES_WRITTEN = "LeasesWritten"
DRAIN_STUCK = "DrainStuck"
TAKEOVERS_PAUSED = "TakeoversPaused"
ASSIGNMENT_STUCK = "AssignmentStuck"
CONFIRMATION_AWAITED = "ConfirmationAwaited"
STRICT_HANDOVER_ACCEPTED = "StrictHandoverAccepted"
CLEANED_UP = "CleanedUp"
RANGES_ASSIGNED = "RangesAssigned"
KEYS_DIFFER = "KeysDiffer"
"""Some objects are placed where the Go sharder would not place them: do not let it work on the ring, too."""

CHANGING = frozenset({DRAIN_STUCK, ASSIGNMENT_STUCK, CONFIRMATION_AWAITED, WEBHOOK_CONTESTED})
"""Conditions whose message changes with the objects or the times that it is about: they are told when they begin."""

LOGGED_BEFORE = frozenset({ASSIGNMENT_STUCK})
"""Conditions whose cause is in the log, where it occurred."""

_NEEDED = (RESOURCES_ACCEPTED, PERMITTED, SELECTOR_VALID, NAMESPACES_ACCEPTED)
"""Conditions without which something is not sharded. Not `ResourcesResolved`: a ring may be there before the
definitions of its resources, and an API server that fails for a while does not change what a ring is.
"""

_UNABLE = "CoordinatorUnable"
_HINDERING = frozenset({"PermissionMissing", "LeasesRefused", _UNABLE})

OPTIONAL_VERBS = frozenset({"get", "watch"})
"""Rights on a ring's resources that make assignments faster. With the others alone, everything is sharded."""

MAX_MESSAGE = 1024
"""Characters of a condition's message."""

DRAIN_STUCK_AFTER = 60.0
"""Seconds after which a drain without acknowledgement needs attention."""
ASSIGNMENT_STUCK_AFTER = 60.0
"""The same for an object without a live shard."""


class News(Protocol):
    """Who is told which rings have news for people."""

    def tell(self, ring: str, /) -> None: ...


class RingReport:
    """Findings about one ring. `news` is told when its conditions may be out of date: also when an attribute gets
    another value.
    """

    def __init__(self, ring: str = "", news: News | None = None) -> None:
        self._ring = ring
        self._news = news
        self.unresolved: dict[GroupResource, str] = {}
        """Why a resource could not be found or read."""
        self.missing_verbs: dict[GroupResource, dict[str, tuple[str, ...]]] = {}
        """With the namespaces where they are missing; none if it is everywhere."""
        self.selector_problem = ""
        self.unconfirmed_namespaces: tuple[str, ...] = ()
        """System namespaces that it selects, and does not get."""
        self.stuck_drains: Mapping[str, Objects] = {}
        """By shard."""
        self.unassigned: Mapping[str, Objects] = {}
        """Objects that have had no live shard for too long, by the API server's answer; "" if it has not been asked."""
        self.undrained: Mapping[str, Objects] = {}
        """Objects that cannot be drained, by the API server's answer."""
        self.refused_leases: dict[str, str] = {}
        """Why the API server refuses writes of shards' Leases, by the Lease."""
        self.unconfirmed: Mapping[str, Objects] = {}
        """By the shard that is dead, and not confirmed to have ended."""
        self.strict_handover_problem = ""
        self.webhook_unreached = False
        self.contested_by = ""
        """Who else keeps changing the ring's webhook configuration."""
        self.another_sharder = ""
        """What another installation says in the ring's status that leaves the ring to this one."""
        self.failing_together = ""
        """Which shards fail at the same time, and what is done about it."""
        self.labels_left: str | None = None
        """Which objects have labels of a ring that is being cleaned up; None if it is not."""
        self.ranges_problem = ""
        """What is wrong with the assignment of a ring that is sharded by ranges."""
        self.ranges_unable = False
        """Whether that is because of this sharder's own rights or settings."""
        self.keys_differing: dict[GroupResource, str] = {}
        """Which objects of a resource have another hash key than in Go."""

    def __setattr__(self, name: str, value: object) -> None:
        known = self.__dict__
        if name not in known:
            known[name] = value
        elif known[name] != value:
            known[name] = value
            if self._news is not None:
                self._news.tell(self._ring)

    def keep(self, resources: Collection[GroupResource]) -> None:
        """The ring has these resources only."""
        self.unresolved = {r: text for r, text in self.unresolved.items() if r in resources}
        self.missing_verbs = {r: verbs for r, verbs in self.missing_verbs.items() if r in resources}
        self.keys_differing = {r: which for r, which in self.keys_differing.items() if r in resources}

    def end(self) -> None:
        """The report is no longer read."""
        self._news = None

    def resolved(self, resource: GroupResource, problem: str = "") -> None:
        """A resource could be found and read, or why not."""
        self.unresolved = _with(self.unresolved, resource, problem)

    def permitted(self, resource: GroupResource, verb: str, allowed: bool, in_: tuple[str, ...] = ()) -> None:
        """A request with this verb was allowed or forbidden, everywhere or in these namespaces."""
        before = self.missing_verbs.get(resource, {})
        missing = {other: places for other, places in before.items() if other != verb}
        if not allowed:
            missing[verb] = in_
        self.missing_verbs = _with(self.missing_verbs, resource, missing)

    def waiting(
        self,
        drains: Mapping[str, Objects],
        unassigned: Mapping[str, Objects],
        unconfirmed: Mapping[str, Objects],
        undrained: Mapping[str, Objects],
    ) -> None:
        """Which objects wait, as of the last scans and refusals."""
        self.stuck_drains, self.unassigned = drains, unassigned
        self.unconfirmed, self.undrained = unconfirmed, undrained

    def lease(self, lease: str, refused: str = "") -> None:
        """The API server refuses what the sharder has to write to a shard's Lease, or does not any more."""
        self.refused_leases = _with(self.refused_leases, lease, refused)

    def keys_differ(self, resource: GroupResource, which: str) -> None:
        """Some objects of the resource have another key than in Go."""
        self.keys_differing = {resource: which, **self.keys_differing}


def _with(known: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    """With this value, or without the key if it is empty."""
    others = {each: other for each, other in known.items() if each != key}
    return {**others, key: value} if value else others


def findings(report: RingReport, resources: RingResources, shards: list[Shard]) -> list[Condition]:
    """The conditions besides Ready that currently apply, without times. Findings about resources that the ring
    no longer has are ignored.
    """
    return [
        Condition(type=type_, status=status, reason=reason, message=for_people(message, MAX_MESSAGE))
        for type_, status, reason, message in _candidates(report, resources, shards)
        if message
    ]


def _candidates(
    report: RingReport, resources: RingResources, shards: list[Shard]
) -> list[tuple[str, str, str, str]]:
    """Type, status, reason and message of all conditions besides Ready; the message is "" where there is nothing."""
    refused = [problem.message for problem in resources.problems if not problem.conflict]
    conflicts = [problem.message for problem in resources.problems if problem.conflict]
    return [
        (CONFLICT, "True", "ResourceConflict", "; ".join(conflicts)),
        (RESOURCES_ACCEPTED, "False", "ResourcesRefused", "; ".join(refused)),
        (RESOURCES_RESOLVED, "False", "ResourcesUnresolved", _unresolved(report, resources)),
        _permitted(report, resources),
        (SELECTOR_VALID, "False", "InvalidSelector", report.selector_problem),
        (NAMESPACES_ACCEPTED, "False", "SystemNamespacesUnconfirmed", _system_namespaces(report)),
        (SHARDS_ACCEPTED, "False", "ShardsRefused", "; ".join(shard_problems(shards))),
        (WEBHOOK_REACHED, "False", "WebhookNotCalled", _UNREACHED if report.webhook_unreached else ""),
        (WEBHOOK_CONTESTED, "True", "WrittenByOthers", _contested(report)),
        (SEVERAL_SHARDERS, "True", "AnotherSharderKeepsIt", report.another_sharder),
        (LEASES_WRITTEN, "False", "LeasesRefused", _leases(report)),
        (DRAIN_STUCK, "True", "DrainNotAcknowledged", _stuck(report, shards)),
        (ASSIGNMENT_STUCK, "True", "ObjectsUnassigned", _unassigned(report, resources)),
        (CONFIRMATION_AWAITED, "True", "ShardsNotConfirmed", _unconfirmed(report)),
        (STRICT_HANDOVER_ACCEPTED, "False", "InvalidDuration", _strict_handover(report)),
        (TAKEOVERS_PAUSED, "True", "ManyShardsFailed", report.failing_together),
        _clean_up(report),
        (KEYS_DIFFER, "True", "OwnersElsewhere", _keys(report, resources)),
        (
            RANGES_ASSIGNED,
            "False",
            _UNABLE if report.ranges_unable else "AssignmentUnusable",
            report.ranges_problem,
        ),
    ]


def hindering(found: Iterable[Condition]) -> str:
    """What keeps this sharder from its work, and perhaps not another one of the ring; "" if nothing does."""
    return "; ".join(each.message for each in found if each.status == "False" and each.reason in _HINDERING)


def needed(found: Iterable[Condition]) -> list[str]:
    """The findings because of which something is not sharded, by type."""
    return [each.type for each in found if each.type in _NEEDED and each.status == "False"]


def with_findings(conditions: tuple[Condition, ...], found: list[Condition]) -> tuple[Condition, ...]:
    """The previous conditions without those of this module that no longer apply; foreign ones and Ready stay."""
    current = {condition.type for condition in found}
    return tuple(
        c for c in conditions if c.type == READY or c.type not in OWN_CONDITIONS or c.type in current
    )


def shard_problems(shards: list[Shard], *, declared: bool = False) -> list[str]:
    """Why some Leases of a ring are not members, or not separate members. `declared`: it has no ControllerRing, which
    would say where shards may be.
    """
    problems = [
        f"shard {name!r} has Leases in several namespaces ({', '.join(key.namespace for key in keys)})"
        for name, keys in sorted(duplicates(shards).items())
    ]
    problems += [
        f"{shard.key} is left out: its name is not a label value" for shard in shards if not shard.valid
    ]
    problems += [
        f"{shard.key} is left out: its namespace is not in the ring's annotation {SHARD_NAMESPACES_ANNOTATION}"
        for shard in shards
        if shard.allowed is False
    ]
    namespaces = sorted({shard.key.namespace for shard in shards if shard.member and shard.allowed is None})
    sharing = sorted({shard.key.namespace for shard in shards if shard.member and _owns_buckets(shard)})
    if len(sharing) > 1:
        problems.append(
            f"the shards in each of the namespaces {', '.join(sharing)} share out all objects by ranges, so each object"
            " is worked on several times: stop all but one, or give each another ring, and other namespaces to work in"
        )
    elif len(namespaces) > 1:
        stated = "" if declared else f"; say which in the ring's annotation {SHARD_NAMESPACES_ANNOTATION}"
        problems.append(
            f"the shards are in several namespaces ({', '.join(namespaces)}): if not all of these are meant, somebody"
            f" has created Leases to get objects{stated}"
        )
    problems += [
        f"{shard.key} asks for {shard.excess:.0f} s without renewal; it is given {MAX_DURATION:.0f} s"
        for shard in shards
        if shard.excess
    ]
    if (count := sum(shard.member for shard in shards)) > MAX_SHARDS:
        problems.append(
            f"{count} shards are available, only {MAX_SHARDS} are used, the oldest of each namespace"
        )
    return problems[:10]


def _owns_buckets(shard: Shard) -> bool:
    return owns_some(shard.lease.metadata.annotation(OWNED_RANGES_ANNOTATION))


def _unresolved(report: RingReport, resources: RingResources) -> str:
    return "; ".join(
        problem if str(resource) in problem else f"{resource}: {problem}"
        for resource, problem in sorted(report.unresolved.items(), key=str)
        if resource in resources
    )


def _clean_up(report: RingReport) -> tuple[str, str, str, str]:
    if not report.labels_left:
        said = "no object carries the ring's labels any more"
        return CLEANED_UP, "True", "LabelsRemoved", "" if report.labels_left is None else said
    return CLEANED_UP, "False", "LabelsLeft", f"left to clean up: {report.labels_left}"


def _keys(report: RingReport, resources: RingResources) -> str:
    which = [
        f"{resource}: {which}"
        for resource, which in sorted(report.keys_differing.items())
        if resource in resources
    ]
    return (
        f"these objects are placed with their owners, which the Go sharder does not do ({'; '.join(which)}): while it "
        "works on the ring, too, both move them"
        if which
        else ""
    )


def _permitted(report: RingReport, resources: RingResources) -> tuple[str, str, str, str]:
    missing = {resource: verbs for resource, verbs in report.missing_verbs.items() if resource in resources}
    rules = "; ".join(
        f'the rule {{apiGroups: ["{resource.group}"], resources: ["{resource.resource}"],'
        f" verbs: [{', '.join(sorted(verbs))}]}}{_in_namespaces(verbs)}"
        for resource, verbs in sorted(missing.items(), key=str)
    )
    if all(verbs.keys() <= OPTIONAL_VERBS for verbs in missing.values()):
        text = f"objects that the webhook misses are assigned late: the sharder lacks {rules}"
        return PERMITTED, "True", "OptionalPermissionMissing", text if rules else ""
    return PERMITTED, "False", "PermissionMissing", f"the sharder needs {rules}"


def _in_namespaces(verbs: Mapping[str, tuple[str, ...]]) -> str:
    names = sorted({name for places in verbs.values() for name in places})
    return f" in the namespaces {', '.join(names)}" if names else ""


def _system_namespaces(report: RingReport) -> str:
    if not report.unconfirmed_namespaces:
        return ""
    names = ", ".join(report.unconfirmed_namespaces)
    return (
        f"the ring's namespaceSelector selects {names}, which the ring leaves out: exclude them in the selector, or"
        f' confirm them by the annotation {SYSTEM_NAMESPACES_ANNOTATION}: "{names}"'
    )


_UNREACHED = (
    "the API server does not call the ring's webhook, so new objects are assigned late, after they were created: check"
    " the Service, its endpoints, network policies, and the certificate authority in the MutatingWebhookConfiguration"
)


def _contested(report: RingReport) -> str:
    if not report.contested_by:
        return ""
    return (
        "somebody else keeps changing the ring's webhook configuration, which is put right once a minute at most: "
        f"{report.contested_by}"
    )


def _stuck(report: RingReport, shards: list[Shard]) -> str:
    """Only of shards that hold their Leases: the objects of the others are moved as soon as they are taken over."""
    alive = {shard.key.name for shard in shards if shard.state.available}
    unreleased = sorted(
        (shard.key.name, why)
        for shard in shards
        if shard.member and (why := shard.lease.metadata.annotation(UNRELEASED_ANNOTATION))
    )
    stuck = {name: count for name, count in report.stuck_drains.items() if name in alive}
    said = []
    if stuck:
        said.append(
            f"{_number(stuck)} carry the drain label for more than {DRAIN_STUCK_AFTER:.0f} s:"
            f" their shards hold their Leases, but do not release them: {_by_shard(stuck)}"
        )
    said += [
        f"{shard} says that the API server does not let it release objects: {why}"
        for shard, why in unreleased[:MENTIONED]
    ]
    if undrained := report.undrained:
        said.append(f"{_number(undrained)} cannot be asked to move to another shard: {by_answer(undrained)}")
    return "; ".join(said)


def _unassigned(report: RingReport, resources: RingResources) -> str:
    """Without those that nobody has refused, if another condition says why."""
    found = dict(report.unassigned)
    if _permitted(report, resources)[1] == "False":
        found.pop("", None)
    if not found:
        return ""
    return f"{_number(found)} have had no live shard, and could not be given to one: {by_answer(found)}"


def _leases(report: RingReport) -> str:
    found = sorted(report.refused_leases.items())
    more = f" and {len(found) - MENTIONED} more" if len(found) > MENTIONED else ""
    return "; ".join(f"{lease}: {why}" for lease, why in found[:MENTIONED]) + more


def _unconfirmed(report: RingReport) -> str:
    if not (found := report.unconfirmed):
        return ""
    return (
        f"{_number(found)} wait until it is confirmed that their dead shards have ended: {_by_shard(found)}; if you "
        "know that one has, run `kubectl shard release SHARD`"
    )


def _strict_handover(report: RingReport) -> str:
    problem = report.strict_handover_problem
    return (
        f"annotation {STRICT_HANDOVER_ANNOTATION}: {problem}; objects wait without a limit" if problem else ""
    )


def _number(found: Mapping[str, Objects]) -> str:
    count = sum(objects.count for objects in found.values())
    return "1 object" if count == 1 else f"{count} objects"


def _by_shard(found: Mapping[str, Objects]) -> str:
    parts = [f"{shard} ({objects})" for shard, objects in sorted(found.items())]
    return ", ".join(parts[:10]) + (f" and {len(parts) - 10} more shards" if len(parts) > 10 else "")


OWN_CONDITIONS = frozenset(type_ for type_, *_ in _candidates(RingReport(), RingResources(()), []))
"""The types of `findings`."""
