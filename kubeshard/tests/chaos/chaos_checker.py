"""Judges a run by what its witnesses saw. Pure, and shares no code with kubeshard: the labels are in here once more.

| finding | |
|---|---|
| stale write | a process of a shard changed an object that was not the shard's when the change was stored |
| late write | the same by ranges, before the present shard has written the object. Counted only if writes may be late |
| late create | a late write: a shard created a child of an object that was not its own any more |
| overlap | two processes worked on one object or bucket at the same time, by their journals or by marks on objects |
| interference | a sharder changed more than labels of an object |
| orphan | an object had no living shard for longer than the bound, or has none in the end, unless just created |
| neglected | nobody began to work on an object for longer than the bound, and the time after which shards do again |
| unconfirmed | with strict hand-over: an object was taken from a shard of which no Lease says that it has ended |
| parted | in the end a child is not on the shard of its owner |
| failed request | a user's failed, though those about other objects succeeded around it, and no server died under it |

Who wrote a change is known by the mark that the operator leaves on each object that it writes, even if the answer to
the write was lost; otherwise by the audit log.

Work ends with its process: what a killed process had sent is judged by what was stored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from chaos_records import Asked, Audited, Change, Lived, Marked, Object, Record, Worked

MARK = "chaos.kubeshard.test/by"
"""`<shard>/<pid>/<run>/<step>`"""
SHARD_USER = "shard:"
SHARDER_USER = "system:serviceaccount:sharding-system:sharder"
NEAR = 3.0
"""Seconds before and after a user's request within which requests about other objects have to succeed."""
REWRITTEN = 30.0
"""Seconds after a user's change of the labels during which an overlap is the user's."""
PROOF_LIFETIME = 5.0
"""Seconds for which a proof stands: a shard may have its Lease again meanwhile."""
FRESH = 1.0
"""Seconds before the end of the records within which an object that is created may have no shard yet."""
CONFIRMED = "alpha.sharding.timebertt.dev/confirmed-ended"
"""`<transitions of the Lease>/<who says so>`"""
_BOOKKEEPING = ("resourceVersion", "managedFields", "generation", "labels")


class Finding(NamedTuple):
    at: float
    rule: str
    what: str


@dataclass
class Verdict:
    findings: list[Finding] = field(default_factory=list)
    late_creates: int = 0
    late_writes: int = 0
    longest_without_owner: float = 0.0
    moves: int = 0
    landed_unanswered: int = 0
    """Writes of shards that were stored although the answer was an error, or there was none."""
    unattributed: int = 0
    """Changes of which no witness says who made them."""
    excused_overlaps: int = 0
    """Overlaps soon after a user gave the object to another shard, who may be at work on it when it is taken back."""
    excused_children: int = 0
    """Writes to the child of an object that a user gave to another shard during the run that wrote."""
    excused_requests: int = 0
    """Requests that failed while requests about other objects failed, too."""

    def count(self, rule: str) -> int:
        return sum(finding.rule == rule for finding in self.findings)


def check(
    records: Iterable[Record],
    ring: str,
    bound: float,
    *,
    strict: bool = False,
    by_versions: bool = False,
    late: bool = False,
    again: float = inf,
) -> Verdict:
    """Judges what happened since the first mark. `bound`: seconds that an object may be without a living shard.
    `strict`: whether the ring asks for strict hand-over. `by_versions`: writes prove no shard, but that nobody has
    written since the object was read. `late`: what a shard has sent may arrive when others have its objects. `again`:
    seconds after which a shard begins with each of its objects again.
    """
    seen = sorted(records, key=lambda record: record.at)
    verdict = Verdict()
    changes = sorted((each for each in seen if isinstance(each, Change)), key=lambda each: each.revision)
    labels = f"shard.alpha.sharding.timebertt.dev/{ring}", f"drain.alpha.sharding.timebertt.dev/{ring}"
    worked = [each for each in seen if isinstance(each, Worked)]
    lives = _Lives((each for each in seen if isinstance(each, Lived)), worked)
    audited = [each for each in seen if isinstance(each, Audited)]
    writes = _Writes(verdict, changes, audited, worked, labels, strict, by_versions, late)
    writes.judge()
    _journals(verdict, worked, lives, _units(changes, ring))
    _marks(verdict, changes)
    _excuse_overlaps(verdict, writes.rewritten)
    end = max((each.at for each in seen), default=0.0)
    began = next((each.at for each in seen if isinstance(each, Marked)), 0.0)
    _ownership(verdict, changes, lives, labels, began, end, bound)
    _neglected(verdict, changes, worked, began, end, bound + again)
    _requests(verdict, [each for each in seen if isinstance(each, Asked)], lives.of_servers)
    verdict.findings = sorted(each for each in verdict.findings if each.at >= began)
    return verdict


class _Lives:
    """Which processes run when."""

    def __init__(self, records: Iterable[Lived], worked: Iterable[Worked]) -> None:
        self.died: dict[int, float] = {}
        self._of: defaultdict[str, list[Lived]] = defaultdict(list)
        self._at_work: dict[int, float] = {}
        for work in worked:
            self._at_work.setdefault(work.pid, work.at)
        for each in records:
            self._of[each.process].append(each)
            if each.what == "died":
                self.died[each.pid] = each.at
        servers = (lives for name, lives in self._of.items() if name.startswith(("etcd", "kube-apiserver")))
        self.of_servers = [each.at for lives in servers for each in lives if each.what in ("died", "stopped")]
        times = (each.at for lives in self._of.values() for each in lives)
        self.times = sorted([*times, *self._at_work.values()])
        """When a process began or ceased to live."""

    def living(self, shard: str, at: float) -> bool:
        """Whether a process of the shard runs, is not stopped, and has begun to work. Several may have had its name."""
        pids: dict[int, bool] = {}
        for each in self._of.get(shard, ()):
            if each.at <= at:
                pids[each.pid] = each.what in ("started", "continued")
        return any(runs and self._at_work.get(pid, at + 1) <= at for pid, runs in pids.items())


class _Writes:
    def __init__(
        self,
        verdict: Verdict,
        changes: Sequence[Change],
        audited: Sequence[Audited],
        worked: Sequence[Worked],
        labels: tuple[str, str],
        strict: bool,
        by_versions: bool,
        late: bool,
    ) -> None:
        self._verdict = verdict
        self._late = late
        self._changes = changes
        self._shard, self._drain = labels
        self._strict = strict
        self._by_versions = by_versions
        self._written: set[tuple[str, str]] = set()
        """What its present shard has written since it has it."""
        self._ended: dict[str, float] = {}
        """Until when a shard counts as ended whose Lease said so."""
        self._users = {each.revision: each.user for each in audited if each.revision and each.code < 300}
        self._deletes = [each for each in audited if each.verb == "delete" and each.code < 300]
        self._began = {
            (each.name, str(each.pid), str(each.run)): each.at for each in worked if each.what == "began"
        }
        self._given_away: dict[str, tuple[str, float]] = {}
        """Main objects that a user took from a shard, and when; until their shard changes again."""
        self._owners: dict[str, str | None] = {}
        """The shard of each main object; None if it does not exist."""
        self.rewritten: defaultdict[str, list[float]] = defaultdict(list)
        """When users changed the shard or drain label of main objects, by the object's name."""

    def judge(self) -> None:
        for change in self._changes:
            if change.kind == "lease":
                self._lease(change)
            elif change.before != change.after:
                self._one(change)
            if change.kind == "main":
                self._owners[change.name] = (
                    None if change.after is None else _label(change.after, self._shard)
                )

    def _one(self, change: Change) -> None:
        user, answered = self._user(change)
        before, after = _labels(change.before), _labels(change.after)
        moved = before.get(self._shard) != after.get(self._shard)
        if moved:
            self._written.discard((change.kind, change.name))
        if change.kind == "main" and moved:
            self._given_away.pop(change.name, None)
        if not answered and user.startswith(SHARD_USER):
            self._verdict.landed_unanswered += 1
        if user.startswith((SHARDER_USER, SHARD_USER)):
            self._taken(change, user)
        if user == SHARDER_USER:
            if change.before is None or change.after is None or not _only_labels(change):
                self._found(change, "interference", "a sharder changed more than labels")
        elif user.startswith(SHARD_USER):
            self._of_shard(change, user.removeprefix(SHARD_USER))
            if user.removeprefix(SHARD_USER) == after.get(self._shard) and not moved:
                self._written.add((change.kind, change.name))
        elif not user:
            self._verdict.unattributed += 1
        elif change.kind == "main" and change.before and change.after:
            if moved:
                self._given_away[change.name] = before.get(self._shard, ""), change.at
            if any(before.get(key) != after.get(key) for key in (self._shard, self._drain)):
                self.rewritten[change.name].append(change.at)

    def _lease(self, change: Change) -> None:
        shard = change.name.rpartition("/")[2]
        if _has_ended(change.after, shard):
            self._ended[shard] = inf
        elif self._ended.get(shard) == inf:
            self._ended[shard] = change.at + PROOF_LIFETIME

    def _taken(self, change: Change, user: str) -> None:
        if not self._strict or change.kind != "main" or not change.before or not change.after:
            return
        before = _label(change.before, self._shard)
        moved = before and before != _label(change.after, self._shard)
        if moved and user != SHARD_USER + before and self._ended.get(before, -inf) < change.at:
            self._found(change, "unconfirmed", f"taken from {before}")

    def _user(self, change: Change) -> tuple[str, bool]:
        """Who made it, and whether an API server answered that it was made."""
        user = self._users.get(change.revision, "")
        if user:
            return user, True
        if change.after is None:
            for each in self._deletes:
                if (each.kind, each.name) == (change.kind, change.name) and abs(each.at - change.at) < NEAR:
                    return each.user, True
            return "", False
        mark = _mark(change.after)
        if mark and mark != _mark(change.before):
            return SHARD_USER + mark.partition("/")[0], False
        return "", False

    def _of_shard(self, change: Change, shard: str) -> None:
        main = change.name
        if change.before is None:
            if change.kind == "child" and self._owners.get(main, shard) not in (shard, None):
                self._verdict.late_creates += 1
                if not self._late:
                    self._found(change, "late write", f"{shard} created it, of an object of another shard")
            return
        before = _label(change.before, self._shard)
        labels_only = change.after is not None and _only_labels(change)
        if before != shard:
            took = labels_only and change.after is not None and _label(change.after, self._shard) == shard
            if not took and self._by_versions and (change.kind, change.name) not in self._written:
                self._verdict.late_writes += 1
                if not self._late:
                    self._found(change, "late write", f"by {shard} to an object of {before or 'nobody'}")
            elif not took:
                self._found(change, "stale write", f"by {shard} to an object of {before or 'nobody'}")
        elif change.kind == "child" and not labels_only:
            owner = self._owners.get(main, shard)
            if owner not in (shard, None) and self._under_way(change, shard):
                self._verdict.excused_children += 1
            elif owner not in (shard, None):
                self._found(
                    change, "stale write", f"by {shard} to a child of an object of {owner or 'nobody'}"
                )

    def _under_way(self, change: Change, shard: str) -> bool:
        """Whether the run that wrote the child had begun when a user gave its owner to another shard, which still has
        it. The child's label is all that the write can be compared with.
        """
        before, at = self._given_away.get(change.name, ("", -inf))
        if before != shard or not (mark := _mark(change.after)):
            return False
        _, pid, run, _ = mark.split("/")
        return self._began.get((change.name, pid, run), inf) < at

    def _found(self, change: Change, rule: str, what: str) -> None:
        self._verdict.findings.append(
            Finding(change.at, rule, f"{change.kind} {change.name} at {change.revision}: {what}")
        )


def _units(changes: Sequence[Change], ring: str) -> Mapping[str, str]:
    """The bucket of each main object, by ranges."""
    bucket = f"bucket.alpha.sharding.timebertt.dev/{ring}"
    mains = ((each.name, _label(each.after, bucket)) for each in changes if each.kind == "main")
    return {name: found for name, found in mains if found}


def _journals(verdict: Verdict, worked: Sequence[Worked], lives: _Lives, units: Mapping[str, str]) -> None:
    """`units`: what has one shard at a time, by the names of the objects in it; else it is each object."""
    spans: dict[tuple[str, int, int], list[float]] = {}
    for each in worked:
        key = (each.name, each.pid, each.run)
        if each.what == "began":
            spans[key] = [each.at, lives.died.get(each.pid, float("inf"))]
        elif key in spans:
            spans[key][1] = min(each.at, spans[key][1])
    by_unit: defaultdict[str, list[tuple[float, float, int, str]]] = defaultdict(list)
    for (name, pid, _), (began, ended) in spans.items():
        by_unit[units.get(name, name)].append((began, ended, pid, name))
    for found in by_unit.values():
        running: list[tuple[float, float, int, str]] = []
        for span in sorted(found):
            began, _, pid, name = span
            running = [each for each in running if each[1] > began]
            for _, _, other, of in [each for each in running if each[2] != pid][:1]:
                text = f"{name}: processes {other} and {pid} worked on it, or on {of}, at the same time"
                verdict.findings.append(Finding(began, "overlap", text))
            running.append(span)


def _marks(verdict: Verdict, changes: Sequence[Change]) -> None:
    """Between the marks of one run there must be none of another process."""
    marks: defaultdict[str, list[tuple[Change, str, str]]] = defaultdict(list)
    for change in changes:
        mark = _mark(change.after)
        if change.kind == "main" and mark and mark != _mark(change.before):
            _, pid, run, _ = mark.split("/")
            marks[change.name].append((change, pid, run))
    for name, found in marks.items():
        last = {(pid, run): number for number, (_, pid, run) in enumerate(found)}
        for number, (change, pid, run) in enumerate(found):
            for other, between, _ in found[number + 1 : last[pid, run]]:
                if between != pid:
                    text = f"{name} at {other.revision}: process {between} in run {run} of process {pid}"
                    verdict.findings.append(Finding(change.at, "overlap", text))


def _excuse_overlaps(verdict: Verdict, rewritten: Mapping[str, Sequence[float]]) -> None:
    kept = []
    for each in verdict.findings:
        name = each.what.replace(":", " ").split()[0]
        if each.rule == "overlap" and any(at <= each.at <= at + REWRITTEN for at in rewritten.get(name, ())):
            verdict.excused_overlaps += 1
        else:
            kept.append(each)
    verdict.findings = kept


def _ownership(
    verdict: Verdict,
    changes: Sequence[Change],
    lives: _Lives,
    labels: tuple[str, str],
    began: float,
    end: float,
    bound: float,
) -> None:
    mains: defaultdict[str, list[Change]] = defaultdict(list)
    latest: dict[tuple[str, str], Object | None] = {}
    for change in changes:
        latest[change.kind, change.name] = change.after
        if change.kind == "main":
            mains[change.name].append(change)
    times = lives.times
    for name, found in mains.items():
        since: float | None = None
        before = ""
        for change, until in zip(found, [*(each.at for each in found[1:]), end], strict=True):
            owner = "" if change.after is None else _label(change.after, labels[0])
            if before and owner and owner != before:
                verdict.moves += 1
            before = owner or before
            moments = [change.at, *times[bisect_left(times, change.at) : bisect_left(times, until)]]
            for at in moments:
                owned = change.after is None or (
                    lives.living(owner, at) and labels[1] not in _labels(change.after)
                )
                if owned and since is not None:
                    _without(verdict, name, max(since, began), at, bound)
                    since = None
                elif not owned and since is None:
                    since = at
        fresh = any(each.before is None and end - each.at <= FRESH for each in found)
        if since is not None and not fresh:
            verdict.findings.append(Finding(end, "orphan", f"{name}: nobody's since {end - since:.1f} s"))
        main = latest["main", name]
        child = latest.get(("child", name))
        if main and child and _label(main, labels[0]) != _label(child, labels[0]):
            owners = f"{_label(main, labels[0]) or 'nobody'}, child: {_label(child, labels[0]) or 'nobody'}"
            verdict.findings.append(Finding(end, "parted", f"{name}: {owners}"))


def _without(verdict: Verdict, name: str, since: float, until: float, bound: float) -> None:
    seconds = until - since
    verdict.longest_without_owner = max(verdict.longest_without_owner, seconds)
    if seconds > bound:
        verdict.findings.append(
            Finding(until, "orphan", f"{name}: without a living shard for {seconds:.1f} s")
        )


def _neglected(
    verdict: Verdict,
    changes: Sequence[Change],
    worked: Sequence[Worked],
    began: float,
    end: float,
    bound: float,
) -> None:
    """Of the objects that there are in the end."""
    since: dict[str, float] = {}
    for change in changes:
        if change.kind == "main" and change.after is None:
            since.pop(change.name, None)
        elif change.kind == "main":
            since.setdefault(change.name, max(began, change.at))
    times = {name: [at] for name, at in since.items()}
    for each in worked:
        if each.what == "began" and each.at > since.get(each.name, inf):
            times[each.name].append(each.at)
    for name, found in times.items():
        for at, until in pairwise([*found, end]):
            if until - at > bound:
                text = f"{name}: nobody began to work on it for {until - at:.1f} s"
                verdict.findings.append(Finding(until, "neglected", text))


def _requests(verdict: Verdict, asked: Sequence[Asked], servers_died: Sequence[float]) -> None:
    probes = [each for each in asked if each.probe]
    for each in asked:
        if each.probe or not each.problem:
            continue
        near = [probe for probe in probes if probe.until >= each.at - NEAR and probe.at <= each.until + NEAR]
        cut_off = any(each.at <= died <= each.until for died in servers_died)
        if near and not cut_off and not any(probe.problem for probe in near):
            verdict.findings.append(Finding(each.at, "failed request", f"{each.what}: {each.problem}"))
        else:
            verdict.excused_requests += 1


def _has_ended(lease: Object | None, shard: str) -> bool:
    """Whether its holder released the Lease, or it is written there that it has ended."""
    spec = (lease or {}).get("spec", {})
    annotations = ((lease or {}).get("metadata") or {}).get("annotations") or {}
    number = annotations.get(CONFIRMED, "").partition("/")[0]
    holder = spec.get("holderIdentity", "") if lease else shard
    return not holder or (holder != shard and number == str(spec.get("leaseTransitions", 0)))


def _only_labels(change: Change) -> bool:
    return _rest(change.before) == _rest(change.after)


def _rest(obj: Object | None) -> Mapping[str, Any]:
    obj = obj or {}
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key not in _BOOKKEEPING}
    return {**obj, "metadata": metadata}


def _labels(obj: Object | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _label(obj: Object | None, key: str) -> str:
    return _labels(obj).get(key, "")


def _mark(obj: Object | None) -> str:
    annotations = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(MARK, ""))
