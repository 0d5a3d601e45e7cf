"""What led to a violation, from the history of a run: whose the object was, who worked on it, who held which Lease,
which writes took effect and which requests failed, and what was inflicted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from kubeshard_lab.simulation import history as entries
from kubeshard_lab.simulation.oracles import Violation

BEFORE, AFTER = 40.0, 3.0
"""Seconds that are told before and after the moment."""


def timeline(
    history: Sequence[entries.Entry],
    at: float,
    name: str,
    title: str,
    *,
    others: Iterable[Violation] = (),
    most: int = sys.maxsize,
) -> str:
    """The title, and the last events before the moment with their times, and fewer after it; violations are marked.

    `name` is the object that matters, or empty. If it was left alone for long before the moment, the events are those
    around the last that happened to it. `others`: the other violations of the run.
    """
    busy = (
        entry.at
        for entry in history
        if isinstance(entry, entries.Changed | entries.Began | entries.Ended) and entry.name == name
    )
    last = max((when for when in busy if when <= at), default=at)
    around = at if at - last < BEFORE else last
    told = _Told(max(0.0, around - BEFORE), around + AFTER, name)
    for entry in history:
        if entry.at > told.end:
            break
        told.take(entry)
    for each in others:
        if each.at <= told.end:
            told.say(each.at, f">>> {each.title}")
    told.say(at, f">>> {title}")
    lines = sorted(told.lines, key=lambda line: line[0])
    moment = lines.index((at, f">>> {title}"))
    shown = lines[max(0, moment - most) : moment + most // 4 + 1]
    return "\n".join([title, *(f"{when:9.2f}  {line}" for when, line in shown)])


class _Told:
    """The lines between two times. Entries from before are taken as well: they say how things stood."""

    def __init__(self, begin: float, end: float, name: str) -> None:
        self._begin, self.end = begin, end
        self._name = name
        self.lines: list[tuple[float, str]] = []
        self._sent: dict[int, entries.Sent] = {}
        self._holders: dict[str, str] = {}
        """Of each Lease."""
        self._busy = Counter[str]()
        """How often each process works on the object."""
        self._faults: dict[int, tuple[float, str]] = {}
        """Those that are on, since when."""

    def say(self, at: float, text: str) -> None:
        if at >= self._begin:
            self.lines.append((at, text))

    def take(self, entry: entries.Entry) -> None:
        at = entry.at
        match entry:
            case entries.Sent():
                self._sent[entry.request] = entry
            case entries.Changed(name=name) if name == self._name:
                self._changed(entry)
            case entries.Answered() if (sent := self._sent.get(entry.request)) and self._of_object(sent):
                if entry.status >= 300 or entry.why:
                    how = "is refused" if entry.status < 500 and not entry.why else "fails"
                    why = entry.why or entry.status
                    self.say(at, f"{sent.process} {how}: {sent.verb} {sent.what}, {why}{_took(sent, at)}")
            case entries.LeaseChanged():
                self._lease(entry)
            case entries.Began(name=name) if name == self._name:
                self._busy[entry.process] += 1
                self.say(at, f"{entry.process} begins to work on {name}")
            case entries.Ended(name=name) if name == self._name:
                self._worked(entry.process, at)
            case entries.Started():
                self.say(at, f"{entry.process} starts")
            case entries.Died():
                self.say(at, f"{entry.process} is dead: {entry.why}")
                while self._busy[entry.process]:
                    self._worked(entry.process, at)
            case entries.Inflicted(number=number, kind=kind) if not entry.over:
                self._faults[number] = at, kind
                self.say(at, f"fault: {kind}")
            case entries.Hit(number=number, process=victim):
                begin, kind = self._faults[number]
                self._faults[number] = begin, f"{kind} {victim}"
                self.say(at, f"{kind} hits {victim}")
            case entries.Inflicted(number=number):
                begin, kind = self._faults.pop(number)
                if at - begin > 0.5:
                    self.say(at, f"fault over: {kind}")
            case entries.Restored():
                self.say(at, "etcd is restored")
            case entries.Switched():
                self.say(at, f"shards by {'ranges' if entry.by_version else 'labels'} have begun")

    def _of_object(self, sent: entries.Sent) -> bool:
        return bool(self._name) and sent.name.removeprefix("c-") == self._name

    def _changed(self, entry: entries.Changed) -> None:
        sent = self._sent.get(entry.request)
        outside = "the cluster" if entry.what and entry.kind == "child" else "a user"
        who = sent.process + ("'s sharder" if sent.sharder else "") if sent else outside
        child = "the child of " if entry.kind == "child" else ""
        named = entry.what or f"{child}{entry.name}"
        before, after = entry.owner
        if before != after:
            what = f"gives {named} of {before or 'nobody'} to {after or 'nobody'}"
        elif entry.draining[0] != entry.draining[1]:
            what = f"{'asks' if entry.draining[1] else 'no longer asks'} {after or 'nobody'} for {entry.name}"
        else:
            what = f"writes {named}" + ("" if entry.what else f" of {entry.main_owner or 'nobody'}")
        if not entry.existed or not entry.exists:
            what = f"{'deletes' if entry.existed else 'creates'} {named}"
        self.say(entry.at, f"{who} {what}{_took(sent, entry.at)}")

    def _worked(self, process: str, at: float) -> None:
        if self._busy[process]:
            self._busy[process] -= 1
            self.say(at, f"{process} ends work on {self._name}")

    def _lease(self, entry: entries.LeaseChanged) -> None:
        sent = self._sent.get(entry.request)
        who = sent.process if sent else "a user"
        before = self._holders.get(entry.name, "")
        now = entry.holder
        if now == entry.name and not entry.elected:  # a sharder writes labels of a Lease that a shard holds
            now = who if sent and not sent.sharder else before or entry.name
        elif now:
            now = who
        if now == before:
            return
        self._holders[entry.name] = now or ""
        if entry.holder is None:
            self.say(entry.at, f"{who} deletes the Lease of {entry.name}")
        else:
            self.say(entry.at, f"the Lease of {entry.name} is held by {now or 'nobody'}")


def _took(sent: entries.Sent | None, at: float) -> str:
    return f", sent {at - sent.at:.1f} s before" if sent and at - sent.at > 1 else ""
