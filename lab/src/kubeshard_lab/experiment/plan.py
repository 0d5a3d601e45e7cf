"""Which requests are due, and when; sans I/O.

Guaranteed: the same scenario and the same random numbers give the same requests, whatever the server answers; times do
not decrease; an object is changed and deleted only after it was created, and never after it was deleted. Not
guaranteed: that the server knows an object: its creation may have failed.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kubeshard.runtime.rng import Rng, below, letters, one_of
from kubeshard_lab.experiment.scenarios import Scenario

Verb = Literal["create", "patch", "delete"]

COLORS = (
    "aqua", "black", "blue", "darkcyan", "darkgray", "fuchsia", "gray", "green", "lime", "maroon", "navy", "olive",
    "orange", "purple", "red", "silver", "teal",
)  # fmt: skip
FONTS = ("Arial", "Courier New", "Futura", "Georgia", "Helvetica", "Palatino", "Tahoma", "Times", "Verdana")

_FIRST_STORM = 0.2


class Due(NamedTuple):
    """A request. `after` is when it is due, in seconds after the load began."""

    after: float
    verb: Verb
    namespace: str
    """`""` is a Theme's."""
    name: str
    number: int
    """Counts all requests of a run, existing objects first."""
    theme: str = ""
    """What to set spec.theme to. `""`: this change is an annotation's."""
    look: tuple[str, str] = ("", "")
    """A Theme's color and font."""


@dataclass(slots=True, eq=False)
class _Object:
    namespace: str
    name: str
    theme: str
    place: int
    alive: bool = True


class _Agenda:
    """What comes next, by time; what was added first, first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, _Object | None]] = []
        self._order = itertools.count()

    def add(self, time: float, what: str, obj: _Object | None = None) -> None:
        heapq.heappush(self._heap, (time, next(self._order), what, obj))

    def take(self) -> tuple[float, str, _Object | None]:
        time, _, what, obj = heapq.heappop(self._heap)
        return time, what, obj

    def __len__(self) -> int:
        return len(self._heap)


class LoadPlan:
    """`projects` and `themes` come first, then the `existing` objects, then the load. Iterate over it once."""

    def __init__(self, scenario: Scenario, rng: Rng) -> None:
        self._scenario = scenario
        self._rng = rng
        self._numbers = itertools.count()
        self._live: list[_Object] = []
        token = letters(self._rng, 4)
        self.projects = tuple(f"project-{token}-{number:02}" for number in range(scenario.projects))
        self.themes = {f"theme-{token}-{number:02}": self._look() for number in range(scenario.themes)}
        self._theme_names = tuple(self.themes)
        self.existing = [self._create(0.0) for _ in range(scenario.existing)]

    def __iter__(self) -> Iterator[Due]:
        scenario = self._scenario
        creating = scenario.duration * scenario.creating
        agenda = _Agenda()
        created, deleted = itertools.count(1), itertools.count(1)
        if scenario.create:
            agenda.add(0.0, "create")
        if scenario.delete:
            agenda.add(0.5 / scenario.delete, "delete")
        if scenario.theme_every:
            agenda.add(scenario.theme_every, "theme")
        if scenario.storm_every:
            agenda.add(scenario.storm_every * _FIRST_STORM, "storm")
        if scenario.change_every:
            for obj in self._live:
                agenda.add(self._rng.uniform(0.0, scenario.change_every), "change", obj)
        free, pause = 0.0, 1 / scenario.changes_at_most
        """When the next change may be, and how long after it the one after that."""
        waiting: deque[tuple[str, _Object]] = deque()
        while agenda:
            time, what, target = agenda.take()
            if time >= scenario.duration:
                return
            if what in ("create", "delete") and time >= creating:
                continue
            match what:
                case "create":
                    yield self._create(time)
                    agenda.add(next(created) / scenario.create, what)
                    if scenario.change_every:
                        # Changes are spread between creations, and do not come on the same beat.
                        spread = self._rng.uniform(0.0, 1 / scenario.create)
                        agenda.add(time + scenario.change_every + spread, "change", self._live[-1])
                case "delete":
                    agenda.add((next(deleted) + 0.5) / scenario.delete, what)
                    if self._live:
                        yield self._delete(time)
                case "theme":
                    agenda.add(time + scenario.theme_every, what)
                    name = one_of(self._rng, self._theme_names)
                    yield Due(time, "patch", "", name, next(self._numbers), look=self._look())
                case "storm":
                    agenda.add(time + scenario.storm_every, what)
                    for place, obj in enumerate(self._live):
                        agenda.add(time + place * scenario.storm_within / len(self._live), "gust", obj)
                case "turn":
                    late, target = waiting.popleft()
                    if waiting:
                        agenda.add(time + pause, what)
                    if target.alive:
                        free = time + pause
                        yield self._change(time, target)
                        if late == "change":
                            agenda.add(time + scenario.change_every, late, target)
                case _ if target is None or not target.alive:
                    pass
                case _ if time < free or waiting:
                    if not waiting:
                        agenda.add(free, "turn")
                    waiting.append((what, target))
                case _:
                    free = time + pause
                    yield self._change(time, target)
                    if what == "change":
                        agenda.add(time + scenario.change_every, what, target)

    def _create(self, time: float) -> Due:
        obj = _Object(
            one_of(self._rng, self.projects),
            f"experiment-{letters(self._rng, 8)}",
            one_of(self._rng, self._theme_names),
            len(self._live),
        )
        self._live.append(obj)
        return Due(time, "create", obj.namespace, obj.name, next(self._numbers), obj.theme)

    def _change(self, time: float, obj: _Object) -> Due:
        theme = ""
        if self._scenario.changes_spec:
            place = self._theme_names.index(obj.theme) + 1 + below(self._rng, len(self._theme_names) - 1)
            theme = obj.theme = self._theme_names[place % len(self._theme_names)]
        return Due(time, "patch", obj.namespace, obj.name, next(self._numbers), theme)

    def _delete(self, time: float) -> Due:
        obj, last = one_of(self._rng, self._live), self._live[-1]
        self._live[obj.place], last.place = last, obj.place
        self._live.pop()
        obj.alive = False
        return Due(time, "delete", obj.namespace, obj.name, next(self._numbers))

    def _look(self) -> tuple[str, str]:
        return one_of(self._rng, COLORS), one_of(self._rng, FONTS)
