"""The states of the list/watch machine (`listwatch`), each with the data that exist only in it, and the request that
the driver executes in it.

So a version cannot be used in a state that has none, and items of one full list cannot leak into another.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

from kubeshard.cache.snapshot import Snapshot
from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

# Requests: what the driver must do now.


class List(NamedTuple):
    """List everything, consistently, in pages."""


class Watch(NamedTuple):
    """Open a watch with bookmarks. `initial`: it starts with all existing objects, and `resource_version` is
    `""`.
    """

    resource_version: str
    initial: bool = False


class Probe(NamedTuple):
    """Read the server's current version, consistently."""


class Pause(NamedTuple):
    seconds: float


Request = List | Watch | Probe | Pause


# States. `version` is the last version: that of the newest event, bookmark or full list; "" before the first one.


class Streaming(msgspec.Struct, Generic[T]):
    """Listing everything with a watch that starts with the existing objects."""

    version: str
    """The version that was known before; the list shows whether the history went back."""
    rewrites: int
    """The known rewrites of the history at the start of the list."""
    entries: Snapshot[T] = msgspec.field(default_factory=Snapshot)
    opened_at: float | None = None
    due: float = 0.0
    """As in `Watching`, once it is open."""

    @property
    def request(self) -> Request:
        return Watch("", initial=True)


class Listing(msgspec.Struct, Generic[T]):
    """Listing everything in pages."""

    version: str
    """As in `Streaming`."""
    rewrites: int
    """As in `Streaming`."""
    entries: Snapshot[T] = msgspec.field(default_factory=Snapshot)
    streaming_refused: bool = False
    """Whether the server has just rejected a streaming list as invalid."""

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
        return Watch(self.version)


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


class Pausing(msgspec.Struct, Generic[T]):
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
