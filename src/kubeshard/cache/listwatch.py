"""The list/watch state machine: how a cache becomes, and stays, a copy of what the server has.

Sans-IO: no network, no clock.
The driver carries out `request`, tells the machine what happened, and applies the returned change to its
store:

    state   input                                    change              next state
    ------  ---------------------------------------  ------------------  -----------------------------------
    STREAM  event                                    -                   STREAM
            bookmark that ends the initial events    Replace             WATCH
            refused: Invalid (option not known)      -                   LIST
            refused: NotFound                        -                   PAUSE, then start
            ended; any other error                   -                   PAUSE, then LIST
    LIST    item; restarted                          -                   LIST
            listed                                   Replace             OPEN at the list's version
            any error                                -                   PAUSE, then start
    OPEN    opened                                   -                   WATCH
            refused: nobody answers                  -                   PAUSE, then PROBE
            refused: transient                       -                   PAUSE, then OPEN at the same version
            refused: Gone, any other                 -                   PAUSE, then start
    PROBE   probed: the last version, or a later one -                   OPEN at the last version
            probed: an earlier version               -                   start
            refused: transient                       -                   PAUSE, then PROBE
            refused: any other                       -                   PAUSE, then start
    WATCH   event                                    Apply, Remove       WATCH
            event or bookmark before the last        - (counted)         PAUSE, then PROBE; WATCH after a probe
            version                                                      until something new has come
            bookmark                                 Advance             WATCH
            ended after its time                     -                   OPEN at the last version
            ended early; silent past the deadline    -                   PROBE
            ended within 1 s without any news        -                   PAUSE, then start
            connection broke                         -                   PAUSE, then PROBE
            ERROR event: Throttled                   -                   PAUSE, then OPEN at the last version
            ERROR event: Gone, any other; unreadable -                   PAUSE, then start
    PAUSE   elapsed                                  -                   where the pause leads

A full read and a probe are consistent (resourceVersion `""`): they show nothing older than what any API server
had told before they were asked for. So one at an earlier version than the position proves that the history was
rewritten: etcd was restored from a backup. Nothing else proves it. An event or bookmark that is too old may be
a replay and is never believed; it is a reason to ask, as are silence, a broken connection, and a watch that
the server closed early (docs/design/after-a-restore.md).

"start" is STREAM, or LIST where the server does not know streaming lists: one that refused as Invalid, and
then answered a list, is not asked again. Transient are Throttled, Unavailable, Timeout and
UnexpectedResponse; nobody answers in the case of Unavailable and Timeout. The last version is that of the
newest event or bookmark.

Guaranteed: a full read is always consistent (never `"0"`), so the copy never goes back in time unless the
server did; nothing is replaced before a full read is complete; every error leads to a pause with growing,
jittered length and then to another attempt, for ever. Not guaranteed: intermediate states of an object.
Source: framework 2.5, 2.6; KEP-3157.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from kubeshard.cache.backoff import Backoff, BackoffPolicy
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import (
    ApiError,
    Invalid,
    NotFound,
    Throttled,
    Timeout,
    Unavailable,
    UnexpectedResponse,
)
from kubeshard.core.objects import Key, KubeObject
from kubeshard.core.versions import compare
from kubeshard.runtime.rng import Rng

T = TypeVar("T", bound=KubeObject)

SHORT_STREAM = 1.0
"""A watch that ends sooner, and without having moved the position, is taken for a failure (seconds)."""

FAILURES = BackoffPolicy()
NOT_SERVED = BackoffPolicy(cap=5.0)
"""Between looks for a kind that is not installed: at most 10 s with jitter."""

SHORTEST_WATCH, LONGEST_WATCH = 240.0, 480.0
"""How long the server is asked to keep a watch open (seconds): drawn per watch, so that many do not end together."""

LONGEST_RETRY_AFTER = 60.0
"""A server that asks for a longer pause is asked again after this one (seconds)."""

_SILENT = (Unavailable, Timeout)
_TRANSIENT = (Throttled, *_SILENT, UnexpectedResponse)


class State(Enum):
    STREAM = "reading everything through a watch that begins with the existing objects"
    LIST = "reading everything through a paged list"
    OPEN = "opening a watch at a known version"
    PROBE = "asking at which version the server is"
    WATCH = "following changes"
    PAUSE = "waiting before another attempt"


# Requests: what the driver is to do now.


class List(NamedTuple):
    """List everything, consistently, in pages."""


class Watch(NamedTuple):
    """Open a watch with bookmarks. `initial`: it begins with all existing objects, `resource_version` is then
    `""`.
    """

    resource_version: str
    initial: bool = False


class Probe(NamedTuple):
    """Ask for the server's present version, consistently."""


class Pause(NamedTuple):
    seconds: float


Request = List | Watch | Probe | Pause


# Changes: what the driver is to do to its store. An entry that could not be decoded stands for its object.


class Replace(NamedTuple, Generic[T]):
    """These are all objects as of the version. `rewound`: it is an earlier one than was known, so equal versions
    do not mean equal objects.
    """

    entries: Mapping[Key, T | UndecodableObject]
    resource_version: str
    rewound: bool = False


class Apply(NamedTuple, Generic[T]):
    entry: T | UndecodableObject


class Remove(NamedTuple, Generic[T]):
    entry: T | UndecodableObject


class Advance(NamedTuple):
    """Nothing else has happened up to the version."""

    resource_version: str


class StreamingLists:
    """Remembers, for one server, the API groups that refuse streaming lists (aggregated API servers have
    their own mind).
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._refused: set[str] = set()

    def offered_by(self, group: str) -> bool:
        return self._enabled and group not in self._refused

    def refused_by(self, group: str) -> None:
        self._refused.add(group)


class ListWatch(Generic[T]):
    """One list/watch. `state`, `request`, `resource_version` and `last_error` may be read at any time.

    `now` arguments are monotonic seconds. An input that the current state does not take is a bug of the
    driver and raises AssertionError.
    """

    def __init__(self, group: str, streaming: StreamingLists, rng: Rng) -> None:
        self._group = group
        self._streaming = streaming
        self._failures = Backoff(FAILURES, rng)
        self._not_served = Backoff(NOT_SERVED, rng)
        self._buffer: dict[Key, T | UndecodableObject] = {}  # of an incomplete full read
        self._streaming_refused = False  # in this round
        self._opened_at = 0.0
        self._heard = False  # something newer than its beginning on this watch
        self._probed = False  # since something new has come
        self._after_pause: State = State.LIST
        self.resource_version = ""  # empty: unknown, a full read comes next
        self.last_error: ApiError | None = None
        self.stale_events = 0
        self.rewinds = 0
        self.state: State
        self.request: Request
        self.start()

    def start(self) -> None:
        """Begins with a full read, whatever was before."""
        if self._beginning() is State.LIST:
            self._list()
            return
        self._buffer = {}
        self._streaming_refused = False
        self.state, self.request = State.STREAM, Watch("", initial=True)

    def item(self, entry: T | UndecodableObject) -> None:
        """One object of the list."""
        assert self.state is State.LIST
        assert entry.key is not None
        self._buffer[entry.key] = entry

    def restarted(self) -> None:
        """The list lost its snapshot and begins again: what came so far is void."""
        assert self.state is State.LIST
        self._buffer = {}

    def listed(self, resource_version: str, now: float) -> Replace[T] | None:
        """The list is complete. One without a version nobody could watch from: then it counts as failed."""
        assert self.state is State.LIST
        if resource_version in ("", "0"):
            self.failed(UnexpectedResponse("the list came without a resourceVersion"), now)
            return None
        if self._streaming_refused:
            self._streaming.refused_by(self._group)
        change = self._complete(resource_version)
        self._open(resource_version)
        return change

    def opened(self, now: float) -> None:
        """The watch was accepted."""
        assert self.state in (State.STREAM, State.OPEN)
        self._opened_at = now
        self._heard = False
        if self.state is State.OPEN:
            self.state = State.WATCH
            self.last_error = None

    def probed(self, resource_version: str, now: float) -> None:
        """The server is at this version."""
        assert self.state is State.PROBE
        if resource_version in ("", "0"):
            self.failed(UnexpectedResponse("the list came without a resourceVersion"), now)
        elif compare(resource_version, self.resource_version) < 0:
            self.start()
        else:
            self._probed = True
            self._open(self.resource_version)

    def event(self, type_: str, entry: T | UndecodableObject, now: float) -> Apply[T] | Remove[T] | None:
        """ADDED, MODIFIED or DELETED: an object came, changed or left."""
        key, version = entry.key, entry.metadata.resource_version
        if self.state is State.STREAM:
            assert key is not None
            if type_ == "DELETED":
                self._buffer.pop(key, None)
            else:
                self._buffer[key] = entry
            return None
        assert self.state is State.WATCH
        # Equal versions are no duplicates for sure: one transaction of the server can touch several objects.
        if version and compare(version, self.resource_version) < 0:
            self._stale(version, now)
            return None
        self._move_on(version or self.resource_version)
        return Remove(entry) if type_ == "DELETED" else Apply(entry)

    def bookmark(
        self, resource_version: str, now: float, *, ends_initial_events: bool
    ) -> Replace[T] | Advance | None:
        """Nothing else has happened up to this version."""
        assert self.state in (State.STREAM, State.WATCH)
        if self.state is State.STREAM:
            if not ends_initial_events:
                return None
            self.state = State.WATCH
            self._heard = True
            return self._complete(resource_version)
        if compare(resource_version, self.resource_version) < 0:
            self._stale(resource_version, now)
            return None
        self._move_on(resource_version)
        return Advance(resource_version)

    def ended(self, now: float) -> None:
        """The server closed the watch in good order."""
        assert self.state in (State.STREAM, State.WATCH)
        if self.state is State.STREAM:
            self.failed(Unavailable("the watch ended before all existing objects had been sent"), now)
        elif self._was_short(now):
            self._pause(Unavailable("the watch ended at once"), now, self._beginning())
        elif now - self._opened_at < SHORTEST_WATCH:
            self._probe()
        else:
            self._open(self.resource_version)

    def failed(self, error: ApiError, now: float) -> None:
        """The current request failed: refused, or its connection broke or stayed silent past the read
        deadline.
        """
        match self.state:
            case State.STREAM if isinstance(error, Invalid):
                self._streaming_refused = True
                self.last_error = error
                self._list()
            case State.STREAM if not isinstance(error, NotFound):
                self._pause(error, now, State.LIST)
            case State.WATCH if isinstance(error, Timeout) and not self._was_short(now):
                self.last_error = error
                self._probe()
            case State.OPEN | State.WATCH if isinstance(error, _SILENT):
                self._pause(error, now, State.PROBE)
            case State.PROBE if isinstance(error, _TRANSIENT):
                self._pause(error, now, State.PROBE)
            case State.OPEN if isinstance(error, _TRANSIENT):
                self._pause(error, now, State.OPEN)
            case State.WATCH if isinstance(error, Throttled):
                self._pause(error, now, State.OPEN)
            case State.PAUSE:
                raise AssertionError("nothing was asked for")
            case _:
                self._pause(error, now, self._beginning())

    def error_event(self, error: ApiError, now: float) -> None:
        """The server sent an ERROR event: this watch is over."""
        if self.state is State.WATCH and not isinstance(error, Throttled):
            self._pause(error, now, self._beginning())
        else:
            self.failed(error, now)

    def elapsed(self) -> None:
        """The pause is over."""
        assert self.state is State.PAUSE
        match self._after_pause:
            case State.OPEN:
                self._open(self.resource_version)
            case State.PROBE:
                self._probe()
            case State.LIST:
                self._list()
            case _:
                self.start()

    # Transitions

    def _beginning(self) -> State:
        return State.STREAM if self._streaming.offered_by(self._group) else State.LIST

    def _list(self) -> None:
        self._buffer = {}
        self.state, self.request = State.LIST, List()

    def _probe(self) -> None:
        self.state, self.request = State.PROBE, Probe()

    def _stale(self, version: str, now: float) -> None:
        """A replay, or the history was rewritten. A probe tells; what it cleared of suspicion is a replay."""
        self.stale_events += 1
        if not self._probed:
            problem = f"the watch went back from version {self.resource_version} to {version}"
            self._pause(UnexpectedResponse(problem), now, State.PROBE)

    def _open(self, resource_version: str) -> None:
        self.resource_version = resource_version
        self.state, self.request = State.OPEN, Watch(resource_version)

    def _move_on(self, resource_version: str) -> None:
        if resource_version != self.resource_version:
            self._heard, self._probed = True, False
        self.resource_version = resource_version

    def _complete(self, resource_version: str) -> Replace[T]:
        entries, self._buffer = self._buffer, {}
        rewound = compare(resource_version, self.resource_version) < 0
        self.rewinds += rewound
        self.resource_version = resource_version
        self.last_error = None
        return Replace(entries, resource_version, rewound)

    def _pause(self, error: ApiError, now: float, after: State) -> None:
        self._buffer = {}
        self.last_error = error
        backoff = self._not_served if isinstance(error, NotFound) else self._failures
        self._after_pause = after
        wanted = min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
        self.state, self.request = State.PAUSE, Pause(max(backoff.failed(now), wanted))

    def _was_short(self, now: float) -> bool:
        return not self._heard and now - self._opened_at < SHORT_STREAM
