"""The states of the list/watch machine (`listwatch`), each with what is known only there, and the request that the
driver carries out in it.

A version that a state does not have cannot be asked for, and what one full read has gathered cannot reach another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from kubeshard.cache.snapshot import Snapshot
from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

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


# States. `version` is the last version: that of the newest event, bookmark or full read; "" before the first one.


@dataclass(slots=True)
class Streaming(Generic[T]):
    """Reading everything through a watch that begins with the existing objects."""

    version: str
    """Of what was known before; the read tells whether the history went back."""
    rewrites: int
    """Of the history, that are known of as the read begins."""
    entries: Snapshot[T] = field(default_factory=Snapshot)
    opened_at: float | None = None
    due: float = 0.0
    """As of `Watching`, once it is open."""

    @property
    def request(self) -> Request:
        return Watch("", initial=True)


@dataclass(slots=True)
class Listing(Generic[T]):
    """Reading everything through a paged list."""

    version: str
    """As of `Streaming`."""
    rewrites: int
    """As of `Streaming`."""
    entries: Snapshot[T] = field(default_factory=Snapshot)
    streaming_refused: bool = False
    """Whether the server has just called a streaming list invalid."""

    @property
    def request(self) -> Request:
        return List()


@dataclass(slots=True)
class Opening:
    """Opening a watch at the last version."""

    version: str
    since: float
    """When the version was last beyond question (monotonic seconds)."""
    cleared: bool = False
    """As of `Watching`."""

    @property
    def request(self) -> Request:
        return Watch(self.version)


@dataclass(slots=True)
class Probing:
    """Asking at which version the server is."""

    version: str
    since: float
    """When the question arose (monotonic seconds)."""

    @property
    def request(self) -> Request:
        return Probe()


@dataclass(slots=True)
class Watching:
    """Following changes, on the request of the state before."""

    version: str
    request: Request
    opened_at: float
    due: float
    """When the server is to end it."""
    heard: bool = False
    """Whether this watch has told anything newer than its beginning."""
    cleared: bool = False
    """Whether a probe has shown, since something new came, that what is older than the last version is a replay."""


@dataclass(slots=True)
class Pausing(Generic[T]):
    """Waiting before another attempt."""

    seconds: float
    then: Streaming[T] | Listing[T] | Probing

    @property
    def version(self) -> str:
        return self.then.version

    @property
    def request(self) -> Request:
        return Pause(self.seconds)


State = Streaming[T] | Listing[T] | Opening | Probing | Watching | Pausing[T]
