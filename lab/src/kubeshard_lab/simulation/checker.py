"""Checks the history of a run, after it: what the oracles notice while it runs, from other data and by other code.

It shares nothing with the oracles but the history's form, on purpose: a mistake in what they remember of a run, or in
what they excuse, shows as a disagreement. So the bounds are written out once more: those of the oracles are computed
from the product, and follow if it changes one; here somebody has to change the number, and to say why that is safe.

- stale write: a write by a shard took effect on a main object, or on a child of one, that another shard owned; where
  nothing on an object names its shard, or did when it was sent: and that this other one had written since it got it.
- overlap: two live processes worked on one object, of one UID, at the same time.
- identity: a process acquired the Lease of a live one of the same name, whose right to act was not over.
- ownership: a minute after the last fault, an object has no owner, or one that does not live. If most shards, and at
  least three, failed to renew their Leases at some time in that minute, those of them that are not back may have it for
  LEFT_FOR seconds more: a sharder leaves them for a while. If the ring has changed its delivery, so may all others:
  nothing is done with them before the last shard of the former kind is given up. Without sharders, one of the shards is
  it: the minute begins when the first of them may act, at most REJOINED seconds later.

The exceptions are the same. Where objects name their shards: a minute after a restore of etcd, and after a user changed
the object's shard label; and reconciles that began before a restore which gave the object to another shard, until they
end. Elsewhere: what a shard does that does not know that a user took the object, and what it has begun until then. Not
judged: writes to children that took longer than a request may take, and to children of deleted objects.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from kubeshard_lab.simulation import history as entries

Rule = Literal["stale write", "overlap", "identity", "ownership"]

GRACE = 60.0
TAIL = 9.0
RIGHT_LASTS = 10.0
LEASE_LASTS = 15.0 / 1.05
"""In seconds, by a clock that is 5 % fast."""
LEFT_FOR = 45.0 + 40.0
"""What is waited for shards that fail together, and until the last of them is given up."""
REJOINED = 2 * 15.0 / 0.95
"""For how long a process waits until the former one under its name has not renewed the Lease, by a slow clock."""
MOVED_WITHIN = 15.0
"""How many seconds the objects of a shard may need then."""


class Finding(NamedTuple):
    at: float
    rule: Rule
    what: str


def check(history: Iterable[entries.Entry], *, by_version: bool = False) -> list[Finding]:
    """Everything that was not right. `by_version`: writes only prove that nobody has written since."""
    return _Checker(by_version).run(history)


class _Checker:
    def __init__(self, by_version: bool) -> None:
        self._by_version = by_version
        self._switched = -math.inf
        """When the ring has changed its delivery last."""
        self._written: dict[tuple[str, str], tuple[str, int]] = {}
        """The objects that the shards have written which have them, and the revision of the first time."""
        self.findings: list[Finding] = []
        self._sent: dict[int, entries.Sent] = {}
        self._alive: set[str] = set()
        self._working = defaultdict[tuple[str, str], Counter[str]](Counter)
        """How many reconciles of each object each process has begun and not ended."""
        self._from_before = defaultdict[tuple[str, str], Counter[str]](Counter)
        """Those of them that began before a restore, or while a user took the object, and their shard had it."""
        self._grace = defaultdict[str, float](float)
        self._grace_of_all = 0.0
        self._owners: dict[str, tuple[str, bool]] = {}
        self._rights: dict[str, tuple[str, float]] = {}
        """For each shard, the process that acquired its Lease last, and until when it may act."""
        self._renewed: dict[str, float] = {}
        """For each shard that holds its Lease, when it renewed it last. Those that a restore brought back or erased, or
        that were released soon after it, count as held: their version does not tell that they were.
        """
        self._last: float | None = None
        """When those must have one, too, that shards may keep for a while."""
        self._due: float | None = None
        """When every object must have an owner; None while there are faults, and afterwards."""
        self._rejoined = math.inf
        """Until when this is later if nobody can be the sharder."""
        self._left: dict[str, float] = {}
        """The shards that failed at a time when most did, and have not been back since, and when they failed last."""

    def run(self, history: Iterable[entries.Entry]) -> list[Finding]:
        for entry in history:
            if self._due is not None:
                if not self._is_shared_out(at := min(entry.at, self._rejoined)):
                    self._due = at + GRACE
                self._note_failing(min(entry.at, self._due))
                if entry.at > self._due:
                    self._ownership(self._due)
            if self._last is not None and entry.at > self._last:
                self._left.clear()
                self._ownership(self._last)
            match entry:
                case entries.Sent():
                    self._sent[entry.request] = entry
                case entries.Changed():
                    self._changed(entry)
                case entries.LeaseChanged():
                    self._lease(entry)
                case entries.Began():
                    self._began(entry)
                case entries.Ended():
                    self._working[which := (entry.name, entry.uid)][entry.process] -= 1
                    self._from_before[which] &= self._working[which]
                case entries.Started():
                    self._alive.add(entry.process)
                case entries.Switched():
                    self._by_version, self._switched = entry.by_version, entry.at
                case entries.Died():
                    self._alive.discard(entry.process)
                case entries.Restored():
                    self._restored(entry)
                case entries.Calm():
                    self._due, self._rejoined = entry.at + GRACE, entry.at + REJOINED
                case entries.Finished() if self._due is not None or self._last is not None:
                    self._left.clear()
                    self._ownership(entry.at)
        return self.findings

    def _found(self, at: float, rule: Rule, what: str) -> None:
        self.findings.append(Finding(at, rule, what))

    def _excused(self, name: str, at: float) -> bool:
        """Where objects name their shards."""
        return not self._by_version and at < max(self._grace[name], self._grace_of_all)

    def _restored(self, entry: entries.Restored) -> None:
        self._grace_of_all = entry.at + GRACE
        self._owners = dict(entry.owners)
        self._rights.clear()
        self._renewed = dict.fromkeys((*self._renewed, *entry.leases), entry.at)
        owners = {name: owner for name, (owner, _) in entry.owners.items()}
        for which, (shard, first) in tuple(self._written.items()):
            if shard != owners.get(which[1]) or first > entry.revisions.get(which[1], 0):
                del self._written[which]
        if not self._by_version:
            self._began_before(lambda name, process: _shard(process) != owners.get(name, ""))

    def _began_before(self, theirs: Callable[[str, str], bool]) -> None:
        """What goes on for these objects in these processes began before the objects came to other shards."""
        for (name, uid), working in self._working.items():
            self._from_before[name, uid] |= Counter(
                {each: n for each, n in working.items() if theirs(name, each)}
            )

    def _changed(self, entry: entries.Changed) -> None:
        sent, (before, after) = self._sent.get(entry.request), entry.owner
        if entry.kind == "main":
            if entry.request == 0 and entry.existed and before != after:
                self._grace[entry.name] = entry.at + GRACE
                if self._by_version and entry.exists:
                    self._began_before(lambda name, by: (name, _shard(by)) == (entry.name, before))
            if before != after:
                self._written.pop(("main", entry.name), None)
                self._written.pop(("child", entry.name), None)
            if entry.exists:
                self._owners[entry.name] = after, entry.draining[1]
            else:
                self._owners.pop(entry.name, None)
        if sent is None or sent.sharder:
            return
        shard, which = _shard(sent.process), (entry.kind, entry.name)
        handed_over = self._by_version and before != after and entry.existed and entry.exists
        owner = before if entry.kind == "main" or handed_over else entry.main_owner
        if owner == shard and not handed_over:
            self._written.setdefault(which, (shard, entry.revision))
        fenced = self._by_version or sent.at < self._switched
        unseen = fenced and not handed_over and which not in self._written
        unaware = self._by_version and sent.at <= entry.unaware_until
        if unseen or unaware or self._excused(entry.name, entry.at):
            return
        if entry.kind == "main":
            took_back = entry.labels_only and after == shard and not self._by_version
            if before != shard and entry.existed and not took_back:
                self._found(entry.at, "stale write", f"{sent.process}: {entry.name} of {before or 'nobody'}")
            return
        of_another_object = not entry.main_uid or entry.belongs_to != entry.main_uid
        too_late = entry.at > sent.at + sent.timeout + TAIL
        reclaimed = entry.labels_only and before == after == shard
        if owner != shard and not (of_another_object or too_late or reclaimed):
            whose = owner or "nobody"
            self._found(entry.at, "stale write", f"{sent.process}: the child of {entry.name} of {whose}")

    def _began(self, entry: entries.Began) -> None:
        which = entry.name, entry.uid
        working = self._working[which]
        others = sorted(
            each
            for each in working - self._from_before[which]
            if each != entry.process and each in self._alive
        )
        unaware = self._by_version and entry.unaware
        excused = unaware or self._excused(entry.name, entry.at)
        if others and entry.process in self._alive and not excused:
            self._found(entry.at, "overlap", f"{entry.process} and {', '.join(others)}: {entry.name}")
        working[entry.process] += 1
        self._from_before[which][entry.process] += unaware

    def _lease(self, entry: entries.LeaseChanged) -> None:
        sent = self._sent.get(entry.request)
        if entry.holder != entry.name and (entry.holder or entry.at >= self._grace_of_all):
            self._renewed.pop(entry.name, None)
        elif not sent.sharder if sent else entry.holder == entry.name:
            self._renewed[entry.name] = entry.at
        if sent is None or entry.holder != entry.name or sent.sharder:
            if sent is None or entry.holder == "":
                self._rights.pop(entry.name, None)  # a user deleted it, or it was released
            return  # a sharder writes labels of Leases, too
        before, until = self._rights.get(entry.name, (sent.process, 0.0))
        if before != sent.process and before in self._alive and entry.at < until:
            left = until - entry.at
            self._found(entry.at, "identity", f"{sent.process} and {before}, which may act for {left:.1f} s")
        self._rights[entry.name] = sent.process, sent.at + RIGHT_LASTS

    def _is_shared_out(self, at: float) -> bool:
        sharders = any(process.startswith("x") for process in self._alive)
        return sharders or any(at < until for _, until in self._rights.values())

    def _note_failing(self, at: float) -> None:
        failing = {name for name, renewed in self._renewed.items() if at - renewed > LEASE_LASTS}
        together = len(failing) >= 3 and 2 * len(failing) > len(self._renewed)
        self._left |= {name: at for name in failing if together or name in self._left}
        for name, failed in tuple(self._left.items()):
            if at - failed > MOVED_WITHIN or (name in self._renewed and name not in failing):
                del self._left[name]

    def _ownership(self, at: float) -> None:
        self._last = at + LEFT_FOR if self._left else None
        self._due = None
        if self._left and self._switched >= 0:
            return
        shards = {_shard(process) for process in self._alive} | {*self._left}
        for name, (owner, draining) in sorted(self._owners.items()):
            if owner not in shards or (draining and owner not in self._left):
                state = "being drained from " if draining else ""
                self._found(at, "ownership", f"{name}: {state}{owner or 'nobody'}")


def _shard(process: str) -> str:
    return process.partition("~")[0]
