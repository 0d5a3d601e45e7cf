"""A timeline of one object around one moment: whose it was, who worked on it, who held which Lease, which writes took
effect and which requests failed, and what was inflicted. From the history of a run, as text and as SVG.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from textwrap import wrap
from typing import NamedTuple

from kubeshard_lab.simulation.faults.injection import KINDS, summary
from kubeshard_lab.simulation.history import (
    Answered,
    Began,
    Changed,
    Died,
    Ended,
    Entry,
    Hit,
    Inflicted,
    LeaseChanged,
    Restored,
    Sent,
    Started,
)
from kubeshard_lab.simulation.oracles import Violation

BEFORE, AFTER = 40.0, 3.0
"""Seconds that are shown before and after the moment."""

WIDTH, ROW, MARGIN = 1180, 26, 12
LETTER, LARGE = 6.6, 8.4
"""How wide a letter is, at most on average: of labels, and of the title."""
COLOURS = ("#4878a8", "#d98032", "#5b9a57", "#a05ba0", "#8a6d4f", "#4a9a9a", "#b3566b", "#7a7a3a")
RED, GREY = "#c22f2f", "#8c8c8c"
THIN = 7
"""How wide a bar is at least, and about half of what shows the text of a mark: less is hard to see, and to hit."""
APART = 20
"""How far marks have to be from each other to be told apart, with a number beside the first."""


FAULT, DRAINED, UNOWNED, TAKEN = PALE = (
    "a fault",
    "an object that is being drained",
    "an object that nobody owns",
    "a Lease that a sharder holds",
)


class Bar(NamedTuple):
    """Something that lasted. `shard` gives it its colour; `pale` says why it is less important, one of `PALE`."""

    begin: float
    end: float
    text: str
    shard: str = ""
    pale: str = ""


class Mark(NamedTuple):
    """Something that happened at once. `good`: a write that took effect."""

    at: float
    text: str
    shard: str = ""
    good: bool = True


class Lane(NamedTuple):
    title: str
    bars: list[Bar]
    marks: list[Mark]


class Timeline(NamedTuple):
    """What is drawn: `lanes` from the top, between two times, with the moment that matters."""

    title: str
    name: str
    begin: float
    end: float
    moment: float
    lanes: list[Lane]
    lines: list[tuple[float, str]]
    """The same events, as text, and the violations."""
    faults: tuple[str, ...] = ()


def timeline_of(
    history: Sequence[Entry],
    at: float,
    name: str,
    title: str,
    *,
    others: Iterable[Violation] = (),
) -> Timeline:
    """The timeline around a moment; `name` is the object that matters, or empty. If it was left alone for long before
    the moment, the timeline is around the last that happened to it. `others`: the other violations of the run.
    """
    busy = (
        entry.at for entry in history if isinstance(entry, Changed | Began | Ended) and entry.name == name
    )
    last = max((when for when in busy if when <= at), default=at)
    around = at if at - last < BEFORE else last
    return _Drawing(max(0.0, around - BEFORE), around + AFTER, name).draw(history, at, title, others)


class _Drawing:
    def __init__(self, begin: float, end: float, name: str) -> None:
        self._begin = begin
        self._end = end
        self._name = name
        self._owner, self._leases, self._faults = Lane("", [], []), dict[str, Lane](), Lane("", [], [])
        self._work = dict[str, Lane]()
        self._lines: list[tuple[float, str]] = []
        self._sent: dict[int, Sent] = {}
        self._stored: set[int] = set()
        self._owns: tuple[float, str, bool] | None = None
        """Since when the object has had this owner, and whether it is being drained; None while it does not exist."""
        self._holds: dict[str, tuple[float, str]] = {}
        self._elections: set[str] = set()
        self._kinds: set[str] = set()
        self._busy: dict[str, list[float]] = {}
        self._on: dict[int, tuple[float, str]] = {}

    def draw(self, history: Iterable[Entry], at: float, title: str, others: Iterable[Violation]) -> Timeline:
        for entry in history:
            if entry.at > self._end:
                break
            self._draw(entry)
        self._close()
        owned = "belongs to" if any(bar.shard for bar in self._owner.bars) else "is written"
        if owned == "is written":
            self._owner.bars.clear()  # nothing is sharded
        lanes = [Lane(f"{self._name} {owned}", *self._owner[1:])] if self._name else []
        lanes += [Lane(f"{each} works", *lane[1:]) for each, lane in sorted(self._work.items())]
        lanes += [
            Lane(f"{'Lease' if lane.bars else 'process'} {each}", *lane[1:])
            for each, lane in sorted(self._leases.items())
        ]
        lanes += [
            Lane("fault" if number == 0 else "", row, [])
            for number, row in enumerate(_rows(self._faults.bars, self._end - self._begin))
        ]
        lanes += self._violations(others)
        self._say(at, f">>> {title}")
        self._lines.sort(key=lambda line: line[0])
        lanes = [lane for lane in lanes if lane.bars or lane.marks]
        kinds = tuple(sorted(self._kinds))
        return Timeline(title, self._name, self._begin, self._end, at, lanes, self._lines, faults=kinds)

    def _violations(self, noticed: Iterable[Violation]) -> Collection[Lane]:
        """A lane for each oracle that has noticed something meanwhile."""
        lanes = dict[str, Lane]()
        for each in noticed:
            if self._begin <= each.at <= self._end:
                lane = lanes.setdefault(each.oracle, Lane(each.oracle, [], []))
                lane.marks.append(Mark(each.at, each.what, good=False))
                self._say(each.at, f">>> {each.title}")
        return lanes.values()

    def _say(self, at: float, text: str) -> None:
        if at >= self._begin:
            self._lines.append((at, text))

    def _bar(self, lane: Lane, begin: float, end: float, text: str, shard: str = "", pale: str = "") -> None:
        if end >= self._begin:
            lane.bars.append(Bar(max(begin, self._begin), min(end, self._end), text, shard, pale))

    def _draw(self, entry: Entry) -> None:
        at = entry.at
        match entry:
            case Sent():
                self._sent[entry.request] = entry
            case Changed(name=name) if name == self._name:
                self._changed(entry)
            case Answered() if (sent := self._sent.get(entry.request)) and self._of_object(sent):
                self._answered(entry, sent)
            case LeaseChanged():
                self._lease(entry)
            case Began(name=name) if name == self._name:
                self._busy.setdefault(entry.process, []).append(at)
                self._say(at, f"{entry.process} begins to work on {name}")
            case Ended(name=name) if name == self._name:
                self._worked(entry.process, at)
            case Started():
                self._say(at, f"{entry.process} starts")
            case Died():
                self._say(at, f"{entry.process} is dead: {entry.why}")
                while self._busy.get(entry.process):
                    self._worked(entry.process, at)
                if at >= self._begin:
                    lane = self._leases.setdefault(entry.process.partition("~")[0], Lane("", [], []))
                    lane.marks.append(Mark(at, f"{entry.process} dead", good=False))
            case Inflicted(number=number, kind=kind) if not entry.over:
                self._on[number] = at, kind
                self._say(at, f"fault: {kind}")
            case Hit(number=number, process=victim):
                begin, kind = self._on[number]
                self._on[number] = begin, f"{kind} {victim}"
                self._say(at, f"{kind} hits {victim}")
            case Inflicted(number=number):
                begin, kind = self._on.pop(number)
                if at - begin > 0.5:
                    self._say(at, f"fault over: {kind}")
                self._fault(begin, at, kind)
            case Restored():
                self._say(at, "etcd is restored")
            case _:
                pass

    def _of_object(self, sent: Sent) -> bool:
        return bool(self._name) and sent.name.removeprefix("c-") == self._name

    def _changed(self, entry: Changed) -> None:
        sent = self._sent.get(entry.request)
        outside = "the cluster" if entry.what and entry.kind == "child" else "a user"
        who = sent.process + ("'s sharder" if sent.sharder else "") if sent else outside
        self._stored.add(entry.request)
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
        self._say(entry.at, f"{who} {what}{_took(sent, entry.at)}")
        if entry.at >= self._begin:
            self._owner.marks.append(Mark(entry.at, f"{who} {what}", who.partition("~")[0]))
        same = self._owns is not None and self._owns[1:] == (after, entry.draining[1])
        if entry.kind == "main" and not (same and entry.exists):
            self._owned(entry.at)
            self._owns = (entry.at, after, entry.draining[1]) if entry.exists else None

    def _answered(self, entry: Answered, sent: Sent) -> None:
        if entry.status >= 300 or entry.why:
            how = "is refused" if entry.status < 500 and not entry.why else "fails"
            what = f"{sent.process} {how}: {sent.verb} {sent.what}, {entry.why or entry.status}{_took(sent, entry.at)}"
            self._say(entry.at, what)
            if entry.at >= self._begin:
                self._owner.marks.append(Mark(entry.at, what, sent.process.partition("~")[0], good=False))

    def _owned(self, until: float) -> None:
        since, owner, draining = self._owns or (until, "", False)
        if until > since:
            text = f"{owner or 'nobody'}{', asked for it' if draining else ''}"
            pale = DRAINED if draining else "" if owner else UNOWNED
            self._bar(self._owner, since, until, text, owner, pale)

    def _worked(self, process: str, at: float) -> None:
        begun = self._busy.get(process)
        if not begun:
            return
        begin = begun.pop(0)
        self._say(at, f"{process} ends work on {self._name}")
        if at >= self._begin:
            lane = self._work.setdefault(process, Lane("", [], []))
            self._bar(lane, begin, at, "", process.partition("~")[0])

    def _lease(self, entry: LeaseChanged) -> None:
        sent = self._sent.get(entry.request)
        who = sent.process if sent else "a user"
        _, before = self._holds.get(entry.name, (entry.at, ""))
        now = entry.holder
        if now == entry.name and not entry.elected:  # a sharder writes labels of a Lease that a shard holds
            now = who if sent and not sent.sharder else before or entry.name
        elif now:
            now = who
        if now == before:
            return
        self._held(entry.name, entry.at)
        self._holds[entry.name] = entry.at, now or ""
        if entry.elected:
            self._elections.add(entry.name)
        if entry.holder is None:
            self._say(entry.at, f"{who} deletes the Lease of {entry.name}")
        else:
            self._say(entry.at, f"the Lease of {entry.name} is held by {now or 'nobody'}")

    def _held(self, name: str, until: float) -> None:
        since, holder = self._holds.get(name, (0.0, ""))
        if holder and until > since:
            lane = self._leases.setdefault(name, Lane("", [], []))
            shard = holder.partition("~")[0] if name in self._elections else name
            self._bar(lane, since, until, holder, shard, "" if holder.partition("~")[0] == shard else TAKEN)

    def _close(self) -> None:
        self._owned(self._end)
        for name in self._holds:
            self._held(name, self._end)
        for process, begun in self._busy.items():
            for begin in begun:
                lane = self._work.setdefault(process, Lane("", [], []))
                self._bar(lane, begin, self._end, "", process.partition("~")[0])
        for begin, kind in self._on.values():
            self._fault(begin, self._end, kind)

    def _fault(self, begin: float, end: float, text: str) -> None:
        if end >= self._begin:
            self._kinds.add(text.split()[0])
        self._bar(self._faults, begin, end, text, pale=FAULT)


def _took(sent: Sent | None, at: float) -> str:
    return f", sent {at - sent.at:.1f} s before" if sent and at - sent.at > 1 else ""


def _rows(bars: Iterable[Bar], seconds: float) -> list[list[Bar]]:
    """Distributes bars over rows, so that none covers another one or its text."""
    letter = LETTER * seconds / (WIDTH * 0.75)  # the rest, at most, is for the names of the lanes
    rows: list[list[Bar]] = []
    for bar in sorted(bars):
        for row in rows:
            last = row[-1]
            if max(last.end, last.begin + (len(last.text) + 2) * letter) + 0.5 < bar.begin:
                row.append(bar)
                break
        else:
            rows.append([bar])
    return rows


def as_text(timeline: Timeline, most: int = sys.maxsize) -> str:
    """The last events before the moment, and fewer after it; violations are marked."""
    moment = timeline.lines.index((timeline.moment, f">>> {timeline.title}"))
    lines = timeline.lines[max(0, moment - most) : moment + most // 4 + 1]
    head = [timeline.title]
    return "\n".join([*head, *(f"{at:9.2f}  {line}" for at, line in lines)])


def as_svg(timeline: Timeline) -> str:
    """A document of its own. The mouse shows what each mark is."""
    titles = wrap(timeline.title, int((WIDTH - 2 * MARGIN) / LARGE)) or [""]
    top = 24 + 20 * len(titles) + 34
    left = MARGIN + 10 + LETTER * max((len(lane.title) for lane in timeline.lanes), default=0)
    bottom = top + ROW * len(timeline.lanes)
    scale = (WIDTH - left - 20) / (timeline.end - timeline.begin)
    shards = sorted({bar.shard for lane in timeline.lanes for bar in lane.bars if bar.shard})
    colours = {shard: COLOURS[number % len(COLOURS)] for number, shard in enumerate(shards)}

    def x(at: float) -> float:
        return round(left + (min(max(at, timeline.begin), timeline.end) - timeline.begin) * scale, 1)

    groups = [
        [
            group
            for good in (True, False)
            for group in _together((x(mark.at), mark) for mark in lane.marks if mark.good is good)
        ]
        for lane in timeline.lanes
    ]
    letters = int((WIDTH - 2 * MARGIN) / LETTER)
    keys = wrap(" ".join(_key(timeline, [len(group) for row in groups for group in row])), letters)
    for kind in timeline.faults:
        if kind in KINDS:
            keys += wrap(f"{kind}: {summary(kind)}", letters)
    height = bottom + 20 + 18 * len(keys)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, line in enumerate(titles):
        out.append(_text(MARGIN, 24 + 20 * number, line, size=15, bold=True))
    step = 5.0
    tick = timeline.begin - timeline.begin % step + step
    while tick < timeline.end:
        out.append(f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{top - 8}" y2="{bottom}" stroke="#e4e4e4"/>')
        out.append(_text(x(tick), top - 12, f"{tick:.0f} s", colour=GREY, anchor="middle"))
        tick += step
    moment = x(timeline.moment)
    out.append(
        f'<line x1="{moment}" x2="{moment}" y1="{top - 28}" y2="{bottom}" stroke="{RED}" stroke-width="2" '
        'stroke-dasharray="5 3"/>'
    )
    said = f"{'later: ' if timeline.moment > timeline.end else ''}violation at {timeline.moment:.2f} s"
    aside = moment - 6 > left + LETTER * len(said)
    out.append(
        _text(
            moment - 6 if aside else moment + 6,
            top - 28,
            said,
            colour=RED,
            anchor="end" if aside else "start",
        )
    )
    for number, lane in enumerate(timeline.lanes):
        y = top + number * ROW
        out.append(_text(left - 10, y + 16, lane.title, anchor="end"))
        for bar in lane.bars:
            out += _bar_of(bar, x(bar.begin), x(bar.end), y, colours.get(bar.shard, GREY))
        out += [line for group in groups[number] for line in _marks_of(group, y)]
    for number, line in enumerate(keys):
        out.append(_text(MARGIN, bottom + 24 + 18 * number, line, colour=GREY))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def _key(timeline: Timeline, together: Iterable[int]) -> Iterator[str]:
    """What bars and marks mean, of those that there are; `together`: how many marks each of those drawn is."""
    bars = [bar for lane in timeline.lanes for bar in lane.bars]
    if any(bar.shard for bar in bars):
        yield "A colour is an instance."
    if pale := [each for each in PALE if any(bar.pale == each for bar in bars)]:
        *others, last = pale
        yield f"Pale: {', '.join(others)}{',' if others[1:] else ''}{' or ' if others else ''}{last}."
    good = {mark.good for lane in timeline.lanes for mark in lane.marks}
    if True in good:
        yield "Triangle: a write that took effect."
    if False in good:
        yield "Cross: a request that failed or was refused, a process that died, or another violation."
    if any(number > 1 for number in together):
        yield "A number: so many at about the same time."


def _text(
    x: float,
    y: float,
    text: str,
    *,
    colour: str = "black",
    anchor: str = "start",
    size: int = 12,
    bold: bool = False,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight} fill="{colour}">'
        f"{escape(text)}</text>"
    )


def _bar_of(bar: Bar, begin: float, end: float, y: float, colour: str) -> list[str]:
    """A bar with its text. What has no colour of its own has a row in which its text may go on beyond it."""
    width = max(THIN, end - begin)
    lasted = f"from {bar.begin:.2f} to {bar.end:.2f} s" if bar.end > bar.begin else f"at {bar.begin:.2f} s"
    out = [
        f'<rect x="{begin}" y="{y + 3}" width="{width:.1f}" height="{ROW - 8}" rx="2" '
        f'fill="{colour}" fill-opacity="{0.35 if bar.pale else 1}"/>'
    ]
    wide = LETTER * len(bar.text)
    if bar.text and (wide + 6 <= width or not bar.shard):
        beyond = begin + 4 + wide > WIDTH - MARGIN
        at, anchor = (WIDTH - MARGIN, "end") if beyond else (begin + 4, "start")
        out.append(_text(at, y + 16, bar.text, colour="black" if bar.pale else "white", anchor=anchor))
    return _tipped(f"{bar.text}{', ' if bar.text else ''}{lasted}", out)


def _together(marks: Iterable[tuple[float, Mark]]) -> list[list[tuple[float, Mark]]]:
    """The marks by place, in groups of those that would cover each other."""
    groups: list[list[tuple[float, Mark]]] = []
    for at, mark in sorted(marks):
        if groups and at - groups[-1][0][0] < APART:
            groups[-1].append((at, mark))
        else:
            groups.append([(at, mark)])
    return groups


def _marks_of(group: Sequence[tuple[float, Mark]], y: float) -> list[str]:
    """One mark for all of a group, at the place of the first, with their number."""
    at, first = group[0]
    colour = "black" if first.good else RED
    shape = f"M{at},{y + 1} l4,7 h-8 z" if first.good else f"M{at - 4},{y + 6} l8,10 m0,-10 l-8,10"
    fill = colour if first.good else "none"
    half = y if first.good else y + ROW / 2
    out = [
        f'<rect x="{at - THIN:.1f}" y="{half}" width="{2 * THIN}" height="{ROW / 2}" fill-opacity="0"/>',
        f'<path d="{shape}" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>',
    ]
    if len(group) > 1:
        out.append(_text(at + 6, y + (9 if first.good else 18), str(len(group)), colour=colour, size=10))
    return _tipped("\n".join(f"{mark.at:.2f} s: {mark.text}" for _, mark in group), out)


def _tipped(tip: str, drawn: Iterable[str]) -> list[str]:
    return [f"<g><title>{escape(tip)}</title>", *drawn, "</g>"]
