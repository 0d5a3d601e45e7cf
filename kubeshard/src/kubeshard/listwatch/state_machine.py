"""The list/watch state machine: how a copy of what the server has comes about, and stays one.

Sans-IO: no network, no clock, and no objects, only their versions. The driver executes `request`, passes the result to
the machine, and passes on what the machine accepts:

    state      input                                     what it means       next state
    ---------  ----------------------------------------  ------------------  ------------------------------------
    Streaming  event                                     accepted            Streaming
               bookmark that ends the initial events     Listed              Watching
               any other bookmark (option ignored)       -                   Listing
               refused: Invalid (option not known)       -                   Listing
               refused: NotFound                         -                   Pausing, then start
               Throttled; not reached, or unavailable    -                   Pausing, then start
               before it was opened
               ended; any other error                    -                   Pausing, then Listing
    Listing    listed                                    Listed              Opening at the list's version
               any error                                 -                   Pausing, then start
    Opening    opened                                    -                   Watching
               refused: Throttled                        -                   Pausing, then Opening at the last version
               refused: any other transient              -                   Pausing, then Probing
               refused: Gone, any other                  -                   Pausing, then start
    Probing    probed: the last version, or a later one  -                   Opening at the last version
               the same, but not promptly                -                   start
               probed: an earlier version                -                   start
               refused: transient                        -                   Pausing, then Probing
               refused: any other                        -                   Pausing, then start
    Watching   event                                     accepted            Watching
               event or bookmark before the last         - (counted)         Pausing, then Probing; after a probe
               version                                                       Watching until something new came
               bookmark                                  accepted            Watching
               ended after its time                      -                   Opening at the last version
               ended early                               -                   Probing
               silent past the deadline                  -                   start
               ended within 1 s without any news         -                   Pausing, then start
               connection broke                          -                   Pausing, then Probing
               ERROR event: Throttled                    -                   Pausing, then Probing
               ERROR event: Gone, any other; unreadable  -                   Pausing, then start
    Pausing    elapsed                                   -                   where the pause leads

"Pausing, then Probing" becomes "Pausing, then start" if the response could no longer be prompt, except after Throttled.
In any state except Streaming and Listing, every input after another list/watch has noticed a restore leads to start.

A full list and a probe are consistent (resourceVersion `""`): they show nothing older than what any API server had
returned before they were requested. So a result at an earlier version than the position proves that the history was
rewritten: etcd was restored from a backup. Nothing else proves it, and a version that is no number proves nothing. An
event or bookmark that is too old may be a replay and is never trusted; it is a reason to probe, as are a broken
connection, a watch that could not be opened, and one that the server closed early. The doubt remains until it is
resolved. A probe that finds the server at or past the position resolves it only within PROMPT seconds after it arose:
later the new history may have passed the position, and then only a full list can tell, as after a silence. Throttled
(429, or 503 with Retry-After) comes from a server that is up: it raises no doubt, and the seconds of an earlier doubt
count from the end of the pause after it. A list/watch that notices a restore informs the others (`SharedKnowledge`),
which then list everything again (docs/design/outages.md).

The states are classes, each with the data that exist only in it, so a version cannot be used in a state that has none.
A list/watch may also begin in Opening: it continues others, at the oldest of their versions (`resume`).

"start" is Streaming, or Listing if the server does not support streaming lists: after it refused one as Invalid, or
ignored the option, and then completed a list, it is not asked again. A server that is overloaded or down is not sent a
list instead, which costs it more; one with an internal error (500) is, because only streaming lists may be broken
there. Throttled, Unavailable, Timeout and UnexpectedResponse are transient. The last version is that of the newest
event or bookmark.

Guaranteed: a full list is always consistent (never `"0"`), so the copy never goes back in time unless the server
did; every error leads to a pause with growing, jittered length and then to another attempt, forever. Not guaranteed:
intermediate states of an object. Source: KEP-3157 (streaming lists).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kubeshard.core.errors import (
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Timeout,
    Unavailable,
    UnexpectedResponse,
)
from kubeshard.core.versions import precedes
from kubeshard.runtime.backoff import Backoff, BackoffPolicy
from kubeshard.runtime.rng import Rng

# Requests: what the driver must do now.


class List(NamedTuple):
    """List everything, consistently, in pages."""


class OpenWatch(NamedTuple):
    """With bookmarks. `initial`: it starts with all existing objects, and `resource_version` is `""`."""

    resource_version: str
    initial: bool = False


class Probe(NamedTuple):
    """Read the server's current version, consistently."""


class Pause(NamedTuple):
    seconds: float


Request = List | OpenWatch | Probe | Pause


# States. `version` is the last version: that of the newest event, bookmark or full list; "" before the first one.


class Streaming(msgspec.Struct):
    """Listing everything with a watch that starts with the existing objects."""

    version: str
    """The version that was known before; the list shows whether the history went back."""
    rewrites: int
    """The known rewrites of the history at the start of the list."""
    opened_at: float | None = None
    due: float = 0.0
    """As in `Watching`, once it is open."""

    @property
    def request(self) -> Request:
        return OpenWatch("", initial=True)


class Listing(msgspec.Struct):
    """Listing everything in pages."""

    version: str
    """As in `Streaming`."""
    rewrites: int
    """As in `Streaming`."""
    streaming_refused: bool = False
    """Whether the server has just rejected a streaming list as invalid, or ignored that one was asked for."""

    @property
    def request(self) -> Request:
        return List()


class Opening(msgspec.Struct):
    """Opening a watch at the last version."""

    version: str
    since: float
    """When the version was last known to be valid (monotonic seconds)."""
    cleared: bool = False
    """As in `Watching`."""

    @property
    def request(self) -> Request:
        return OpenWatch(self.version)


class Probing(msgspec.Struct):
    """Reading the server's current version."""

    version: str
    since: float
    """When the doubt arose (monotonic seconds)."""

    @property
    def request(self) -> Request:
        return Probe()


class Watching(msgspec.Struct):
    """Receiving changes, on the request of the previous state."""

    version: str
    request: Request
    opened_at: float
    due: float
    """When the server will end it."""
    heard: bool = False
    """Whether this watch has sent anything newer than its start."""
    cleared: bool = False
    """Whether a probe has shown, since the last new event, that anything older than the last version is a replay."""


class Pausing(msgspec.Struct):
    """Waiting before another attempt."""

    seconds: float
    then: Streaming | Listing | Opening | Probing

    @property
    def version(self) -> str:
        return self.then.version

    @property
    def request(self) -> Request:
        return Pause(self.seconds)


State = Streaming | Listing | Opening | Probing | Watching | Pausing


SHORT_STREAM = 1.0
"""A watch that ends sooner, early, and without having moved the position, counts as a failure (seconds)."""

FAILURES = BackoffPolicy()
NOT_SERVED = BackoffPolicy(cap=5.0)
"""Between attempts for a kind that is not installed: at most 10 s with jitter."""
ONCE_A_MINUTE = BackoffPolicy(initial=60.0, cap=60.0, jitter=0.0)

PROMPT = 3.0
"""Seconds after a doubt in which a server at or past the position removes it: a pause and a response."""

SHORTEST_WATCH, LONGEST_WATCH = 240.0, 480.0
"""How long the server is asked to keep a watch open (seconds): drawn per watch, so that many do not end together."""

EARLY = 2.0
"""A watch that ends this many seconds before its timeout, or more, was closed early: the server counts whole seconds,
and starts before its response.
"""

LONGEST_RETRY_AFTER = 60.0
"""The longest pause that a server can request (seconds)."""

_SILENT = (Unavailable, Timeout)
_REWRITTEN = "the server's history was rewritten"
_TRANSIENT = (Throttled, *_SILENT, UnexpectedResponse)


class Listed(NamedTuple):
    """Everything that exists at the version has been received. `rewound`: the history was rewritten since the last full
    list, so equal versions do not imply equal objects, and every object counts as updated.
    """

    resource_version: str
    rewound: bool = False


class SharedKnowledge:
    """What the list/watches of one server share: how often its history was rewritten, and the API groups that refuse
    streaming lists (aggregated API servers differ).
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self.rewrites = 0
        self._enabled = enabled
        self._refused: set[str] = set()

    def rewritten(self) -> None:
        """Called on proof of a rewritten history: everything listed before is invalid."""
        self.rewrites += 1

    def offered_by(self, group: str) -> bool:
        return self._enabled and group not in self._refused

    def refused_by(self, group: str) -> None:
        self._refused.add(group)


class ListWatch:
    """One list/watch. `state`, `request`, `resource_version` and `last_error` may be read at any time. `forbidden`:
    between attempts that are refused as such.

    `now` arguments are monotonic seconds. An input that the current state does not take is a bug of the
    driver and raises AssertionError.
    """

    def __init__(
        self, group: str, shared: SharedKnowledge, rng: Rng, *, forbidden: BackoffPolicy = FAILURES
    ) -> None:
        self._group = group
        self._shared = shared
        self._failures = Backoff(FAILURES, rng)
        self._not_served = Backoff(NOT_SERVED, rng)
        self._forbidden = self._failures if forbidden is FAILURES else Backoff(forbidden, rng)
        self.last_error: ApiError | None = None
        self.stale_events = 0
        self.rewinds = 0
        self._rewrites = shared.rewrites
        """The rewrites before the copy was listed."""
        self.state: State = self._beginning("")

    @property
    def request(self) -> Request:
        return self.state.request

    @property
    def resource_version(self) -> str:
        return self.state.version

    def start(self) -> None:
        """Starts with a full list, whatever was before."""
        self.state = self._beginning(self.state.version)

    def resume(self, version: str, now: float) -> None:
        """Starts with a watch that continues another list/watch, which has not noticed a restore."""
        self.state = Opening(version, now)

    @property
    def following(self) -> bool:
        """Whether the copy is right up to the last version beyond doubt, and a watch is open or will be."""
        return isinstance(self.state, Opening | Watching) and not self._outdated

    def listed(self, resource_version: str, now: float) -> Listed | None:
        """The list is complete. Without a version to watch from it counts as failed."""
        state = self.state
        assert isinstance(state, Listing)
        if resource_version in ("", "0"):
            self.failed(UnexpectedResponse("the list had no resourceVersion"), now)
            return None
        if state.streaming_refused:
            self._shared.refused_by(self._group)
        self.state = Opening(resource_version, now)
        return self._complete(state, resource_version)

    def opened(self, now: float, *, lasts: float = SHORTEST_WATCH) -> None:
        """The watch was accepted. `lasts`: for how long the server still has to keep it open."""
        match self.state:
            case Streaming() as state:
                state.opened_at, state.due = now, now + lasts
            case Opening(version, cleared=cleared) as state:
                self.state = Watching(version, state.request, now, now + lasts, cleared=cleared)
                self.last_error = None
            case _:
                raise AssertionError("no watch was asked for")

    def probed(self, resource_version: str, now: float) -> None:
        """The server is at this version."""
        state = self.state
        assert isinstance(state, Probing)
        if resource_version in ("", "0"):
            self.failed(UnexpectedResponse("the list had no resourceVersion"), now)
        elif precedes(resource_version, state.version):
            if not self._outdated:
                self._shared.rewritten()
            self.start()
        elif self._outdated or now - state.since > PROMPT:
            self.start()
        else:
            self.state = Opening(state.version, now, cleared=True)

    def event(self, version: str, now: float) -> bool:
        """An object was added, changed or removed. Returns whether that is accepted."""
        state = self.state
        if isinstance(state, Streaming):
            return True
        assert isinstance(state, Watching)
        # Equal versions need not be duplicates: one transaction of the server can touch several objects.
        return self._follows(state, version or state.version, now)

    def bookmark(self, resource_version: str, now: float, *, ends_initial_events: bool) -> Listed | bool:
        """Nothing else has happened up to this version. Returns whether that is accepted. A streaming list whose first
        bookmark does not end it is over: nothing else would.
        """
        state = self.state
        if isinstance(state, Streaming):
            if not ends_initial_events:
                self.state = Listing(state.version, self._shared.rewrites, streaming_refused=True)
                return False
            assert state.opened_at is not None
            self.state = Watching(resource_version, state.request, state.opened_at, state.due, heard=True)
            return self._complete(state, resource_version)
        assert isinstance(state, Watching)
        return self._follows(state, resource_version, now)

    def ended(self, now: float) -> None:
        """The server closed the watch normally."""
        match self.state:
            case Streaming():
                self.failed(Unavailable("the watch ended before all existing objects had been sent"), now)
            case Watching(version) as state if _was_short(state, now):
                self._pause(Unavailable("the watch ended at once"), now, self._beginning(version))
            case Watching(version) if self._outdated:
                self.state = self._beginning(version)
            case Watching(version, due=due) if due - now >= EARLY:
                self.state = Probing(version, now)
            case Watching(version, cleared=cleared):
                self.state = Opening(version, now, cleared)
            case _:
                raise AssertionError("no watch was open")

    def failed(self, error: ApiError, now: float) -> None:
        """Refused, or its connection broke or stayed silent past the read deadline."""
        match self.state:
            case Streaming(version) if isinstance(error, Invalid):
                # Not yet a problem: if the request itself is wrong, the list fails too.
                self.state = Listing(version, self._shared.rewrites, streaming_refused=True)
            case Streaming(version) as state if not (
                isinstance(error, NotFound) or _turned_away(state, error)
            ):
                self._pause(error, now, Listing(version, self._shared.rewrites))
            case Watching(version) as state if isinstance(error, Timeout) and not _was_short(state, now):
                self.last_error = error
                self.state = self._beginning(version)
            case Opening(version, cleared=cleared) if isinstance(error, Throttled):
                seconds = self._pause_after(error, now)
                self.state = Pausing(seconds, Opening(version, now + seconds, cleared))
            case Opening(version, since) | Probing(version, since) if isinstance(error, _TRANSIENT):
                self._pause_and_ask(error, now, version, since)
            case Watching(version) if isinstance(error, (*_SILENT, Throttled)):
                self._pause_and_ask(error, now, version, now)
            case Pausing():
                raise AssertionError("nothing was asked for")
            case state:
                self._pause(error, now, self._beginning(state.version))

    def error_event(self, error: ApiError, now: float) -> None:
        """The server sent an ERROR event: this watch is over."""
        if isinstance(self.state, Watching) and not isinstance(error, Throttled):
            self._pause(error, now, self._beginning(self.state.version))
        else:
            self.failed(error, now)

    def crashed(self, error: ApiError, now: float) -> float:
        """The driver ended unexpectedly, in any state. It may be started again after this many seconds."""
        return self._pause_after(error, now)

    def elapsed(self) -> None:
        state = self.state
        assert isinstance(state, Pausing)
        # Meanwhile another list/watch may have found that the server does not support streaming lists.
        begin = isinstance(state.then, Streaming) or self._outdated
        self.state = self._beginning(state.version) if begin else state.then

    # Transitions

    @property
    def _outdated(self) -> bool:
        """Whether another list/watch has noticed a restore since the copy was listed."""
        return self._rewrites < self._shared.rewrites

    def _beginning(self, version: str) -> Streaming | Listing:
        rewrites = self._shared.rewrites
        streaming = self._shared.offered_by(self._group)
        return Streaming(version, rewrites) if streaming else Listing(version, rewrites)

    def _follows(self, state: Watching, version: str, now: float) -> bool:
        if precedes(version, state.version):
            # A replay, or a rewritten history. A probe decides; once it has cleared the server, it is a replay.
            self.stale_events += 1
            if not state.cleared:
                problem = f"the watch went back from version {state.version} to {version}"
                self._pause_and_ask(UnexpectedResponse(problem), now, state.version, now)
            return False
        if self._rewrites < self._shared.rewrites:  # `_outdated`, which each event would call
            self._pause(UnexpectedResponse(_REWRITTEN), now, self._beginning(state.version))
            return False
        if version != state.version:
            state.version, state.heard, state.cleared = version, True, False
        return True

    def _complete(self, read: Streaming | Listing, resource_version: str) -> Listed:
        went_back = precedes(resource_version, read.version)
        if went_back and not self._outdated:
            self._shared.rewritten()
            read.rewrites += 1
        rewound = went_back or bool(read.version and self._rewrites < read.rewrites)
        self._rewrites = read.rewrites
        self.rewinds += rewound
        self.last_error = None
        return Listed(resource_version, rewound)

    def _pause(self, error: ApiError, now: float, then: Streaming | Listing) -> None:
        self.state = Pausing(self._pause_after(error, now), then)

    def _pause_and_ask(self, error: ApiError, now: float, version: str, since: float) -> None:
        seconds = self._pause_after(error, now)
        if isinstance(error, Throttled):
            since = now + seconds
        prompt = now + seconds - since <= PROMPT
        self.state = Pausing(seconds, Probing(version, since) if prompt else self._beginning(version))

    def _pause_after(self, error: ApiError, now: float) -> float:
        self.last_error = error
        match error:
            case NotFound():
                backoff = self._not_served
            case Forbidden():
                backoff = self._forbidden
            case _:
                backoff = self._failures
        wanted = min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
        return max(backoff.failed(now), wanted)


def _was_short(state: Watching, now: float) -> bool:
    return not state.heard and now - state.opened_at < SHORT_STREAM and state.due - now >= EARLY


def _turned_away(state: Streaming, error: ApiError) -> bool:
    """Whether the server has no capacity for this list now, as opposed to a list that broke."""
    unavailable = isinstance(error, Unavailable) and error.code != 500
    return isinstance(error, Throttled) or (unavailable and state.opened_at is None)
