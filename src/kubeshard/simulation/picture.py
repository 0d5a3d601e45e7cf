"""A picture of one object around one moment: whose it was, who worked on it, who held which Lease, which writes took
effect and which were refused, and what was inflicted. From the history of a run, as text and as SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from kubeshard.simulation.history import (
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

BEFORE, AFTER = 40.0, 3.0
"""Seconds that are shown before and after the moment."""

WIDTH, LEFT, ROW, TOP = 1180, 150, 26, 74
COLOURS = ("#4878a8", "#d98032", "#5b9a57", "#a05ba0", "#8a6d4f", "#4a9a9a", "#b3566b", "#7a7a3a")
RED, GREY = "#c22f2f", "#8c8c8c"


class Bar(NamedTuple):
    """Something that lasted. `shard` gives it its colour; `pale`: less important."""

    begin: float
    end: float
    text: str
    shard: str = ""
    pale: bool = False


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


class Picture(NamedTuple):
    """What is drawn: `lanes` from the top, between two times, with the moment that matters."""

    title: str
    name: str
    begin: float
    end: float
    moment: float
    lanes: list[Lane]
    lines: list[tuple[float, str]]
    """The same events, as text."""


def picture_of(history: Sequence[Entry], at: float, name: str, title: str) -> Picture:
    """The picture of a moment; `name` is the object that matters, or empty."""
    begin, end = max(0.0, at - BEFORE), at + AFTER
    return _Drawing(begin, end, name).draw(history, at, title)


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
        self._busy: dict[str, list[float]] = {}
        self._on: dict[int, tuple[float, str]] = {}

    def draw(self, history: Iterable[Entry], at: float, title: str) -> Picture:
        for entry in history:
            if entry.at > self._end:
                break
            self._draw(entry)
        self._close()
        about = self._name or "the cluster"
        lanes = [Lane(f"{about} belongs to", *self._owner[1:])] if self._name else []
        lanes += [Lane(f"{each} works", *lane[1:]) for each, lane in sorted(self._work.items())]
        lanes += [Lane(f"Lease {each}", *lane[1:]) for each, lane in sorted(self._leases.items())]
        lanes += [
            Lane("fault" if number == 0 else "", row, [])
            for number, row in enumerate(_rows(self._faults.bars))
        ]
        lanes = [lane for lane in lanes if lane.bars or lane.marks]
        return Picture(title, self._name, self._begin, self._end, at, lanes, self._lines)

    def _say(self, at: float, text: str) -> None:
        if at >= self._begin:
            self._lines.append((at, text))

    def _bar(
        self, lane: Lane, begin: float, end: float, text: str, shard: str = "", pale: bool = False
    ) -> None:
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
                    self._mark(entry.process.partition("~")[0], Mark(at, f"{entry.process} dead", good=False))
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
                self._bar(self._faults, begin, at, kind, pale=True)
            case Restored():
                self._say(at, "etcd is restored")
            case _:
                pass

    def _mark(self, shard: str, mark: Mark) -> None:
        self._leases.setdefault(shard, Lane("", [], [])).marks.append(mark)

    def _of_object(self, sent: Sent) -> bool:
        return bool(self._name) and sent.name.removeprefix("c-") == self._name

    def _changed(self, entry: Changed) -> None:
        sent = self._sent.get(entry.request)
        who = sent.process + ("'s sharder" if sent.sharder else "") if sent else "a user"
        self._stored.add(entry.request)
        child = "the child of " if entry.kind == "child" else ""
        before, after = entry.owner
        if before != after:
            what = f"gives {child}{entry.name} of {before or 'nobody'} to {after or 'nobody'}"
        elif entry.draining[0] != entry.draining[1]:
            what = f"{'asks' if entry.draining[1] else 'no longer asks'} {after or 'nobody'} for {entry.name}"
        else:
            what = f"writes {child}{entry.name} of {entry.main_owner or 'nobody'}"
        if not entry.existed or not entry.exists:
            what = f"{'deletes' if entry.existed else 'creates'} {child}{entry.name}"
        took = f", sent {entry.at - sent.at:.1f} s before" if sent and entry.at - sent.at > 1 else ""
        self._say(entry.at, f"{who} {what}{took}")
        if entry.at >= self._begin:
            self._owner.marks.append(Mark(entry.at, f"{who} {what}", who.partition("~")[0]))
        same = self._owns is not None and self._owns[1:] == (after, entry.draining[1])
        if entry.kind == "main" and not (same and entry.exists):
            self._owned(entry.at)
            self._owns = (entry.at, after, entry.draining[1]) if entry.exists else None

    def _answered(self, entry: Answered, sent: Sent) -> None:
        if entry.status >= 300:
            what = f"{sent.process} is refused: {sent.verb} {sent.kind} {sent.name}, {entry.status}"
            self._say(entry.at, what)
            if entry.at >= self._begin:
                self._owner.marks.append(Mark(entry.at, what, sent.process.partition("~")[0], good=False))

    def _owned(self, until: float) -> None:
        since, owner, draining = self._owns or (until, "", False)
        if until > since:
            text = f"{owner or 'nobody'}{', asked for it' if draining else ''}"
            self._bar(self._owner, since, until, text, owner, pale=draining or not owner)

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
        if now == entry.name:  # a sharder writes labels of a Lease that a shard holds
            now = who if sent and not sent.sharder else before or entry.name
        elif now:
            now = who
        if now == before:
            return
        self._held(entry.name, entry.at)
        self._holds[entry.name] = entry.at, now or ""
        if entry.holder is None:
            self._say(entry.at, f"{who} deletes the Lease of {entry.name}")
        else:
            self._say(entry.at, f"the Lease of {entry.name} is held by {now or 'nobody'}")

    def _held(self, name: str, until: float) -> None:
        since, holder = self._holds.get(name, (0.0, ""))
        if holder and until > since:
            lane = self._leases.setdefault(name, Lane("", [], []))
            self._bar(lane, since, until, holder, name, pale=holder.partition("~")[0] != name)

    def _close(self) -> None:
        self._owned(self._end)
        for name in self._holds:
            self._held(name, self._end)
        for process, begun in self._busy.items():
            for begin in begun:
                lane = self._work.setdefault(process, Lane("", [], []))
                self._bar(lane, begin, self._end, "", process.partition("~")[0])
        for begin, kind in self._on.values():
            self._bar(self._faults, begin, self._end, kind, pale=True)


def _rows(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Distributes bars over rows, so that none covers another one or its text."""
    rows: list[list[Bar]] = []
    for bar in sorted(bars):
        for row in rows:
            if row[-1].end + 1.0 < bar.begin and row[-1].begin + 6.0 < bar.begin:
                row.append(bar)
                break
        else:
            rows.append([bar])
    return rows


def as_text(picture: Picture) -> str:
    """One line per event; the moment is marked."""
    lines = [picture.title]
    told = False
    for at, line in picture.lines:
        if at > picture.moment and not told:
            lines.append(f"{picture.moment:9.2f}  >>> {picture.title}")
            told = True
        lines.append(f"{at:9.2f}  {line}")
    if not told:
        lines.append(f"{picture.moment:9.2f}  >>> {picture.title}")
    return "\n".join(lines)


def as_svg(picture: Picture) -> str:
    """A document of its own. The mouse shows what each mark is."""
    height = TOP + ROW * len(picture.lanes) + 70
    scale = (WIDTH - LEFT - 20) / (picture.end - picture.begin)
    shards = sorted({bar.shard for lane in picture.lanes for bar in lane.bars if bar.shard})
    colours = {shard: COLOURS[number % len(COLOURS)] for number, shard in enumerate(shards)}

    def x(at: float) -> float:
        return round(LEFT + (min(max(at, picture.begin), picture.end) - picture.begin) * scale, 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="15" font-weight="bold">{escape(picture.title)}</text>',
    ]
    bottom = TOP + ROW * len(picture.lanes)
    step = 5.0
    tick = picture.begin - picture.begin % step + step
    while tick < picture.end:
        out.append(f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{TOP - 8}" y2="{bottom}" stroke="#e4e4e4"/>')
        out.append(
            f'<text x="{x(tick)}" y="{TOP - 14}" text-anchor="middle" fill="{GREY}">{tick:.0f} s</text>'
        )
        tick += step
    for number, lane in enumerate(picture.lanes):
        y = TOP + number * ROW
        out.append(f'<text x="{LEFT - 10}" y="{y + 16}" text-anchor="end">{escape(lane.title)}</text>')
        for bar in lane.bars:
            colour = colours.get(bar.shard, GREY)
            opacity = 0.35 if bar.pale else 1
            width = max(1.5, x(bar.end) - x(bar.begin))
            tip = escape(f"{bar.text}, from {bar.begin:.2f} to {bar.end:.2f} s")
            out.append(
                f'<rect x="{x(bar.begin)}" y="{y + 3}" width="{width:.1f}" height="{ROW - 8}" rx="2" '
                f'fill="{colour}" fill-opacity="{opacity}"><title>{tip}</title></rect>'
            )
            room = int(width / 6.6)
            if bar.text and (room >= len(bar.text) or not bar.shard):
                ink = "black" if bar.pale else "white"
                out.append(
                    f'<text x="{x(bar.begin) + 4}" y="{y + 16}" fill="{ink}">{escape(bar.text)}</text>'
                )
        for mark in lane.marks:
            colour = "black" if mark.good else RED
            at = x(mark.at)
            shape = f"M{at},{y + 1} l4,7 h-8 z" if mark.good else f"M{at - 4},{y + 6} l8,10 m0,-10 l-8,10"
            fill = colour if mark.good else "none"
            tip = escape(f"{mark.at:.2f} s: {mark.text}")
            out.append(
                f'<path d="{shape}" fill="{fill}" stroke="{colour}" stroke-width="1.5"><title>{tip}</title></path>'
            )
    moment = x(picture.moment)
    out.append(
        f'<line x1="{moment}" x2="{moment}" y1="{TOP - 26}" y2="{bottom}" stroke="{RED}" stroke-width="2" '
        'stroke-dasharray="5 3"/>'
    )
    out.append(
        f'<text x="{moment - 6}" y="{TOP - 28}" text-anchor="end" fill="{RED}">'
        f"violation at {picture.moment:.2f} s</text>"
    )
    key = (
        "A colour is a shard. Pale: being drained, owned by nobody, or a Lease that a sharder holds. "
        "Triangle: a write that took effect. Cross: a write that was refused, or a process that died."
    )
    out.append(f'<text x="12" y="{bottom + 34}" fill="{GREY}">{escape(key)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
