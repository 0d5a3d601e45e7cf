"""A live copy, in memory, of the objects that a process works with.

Guaranteed: reads are from memory, immutable and strict (an undeclared kind is an error); one list/watch per
(kind, form, scope); handlers are called for every change after it is in the store, in order; whatever happens to
the connection, the copy converges to the server's state, and its age is known. Not guaranteed: that a read
returns the latest state (`OwnWrites` covers this process's own writes), intermediate states, or order across
kinds.

The path of an event: `listwatch` -> `snapshot` (collects full lists) -> `store` -> `deltas` -> `handlers` of the
`informer`. `cache` shares informers, `own_writes` waits for them; `watchers` iterates over events without a cache,
`waiting` waits for one object.
"""

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.errors import CacheBehind, OutsideScope, UndeclaredKind
from kubeshard.cache.handlers import AsyncHandler, Handler, Registration
from kubeshard.cache.indexes import IndexFunction
from kubeshard.cache.informer import Informer
from kubeshard.cache.scope import Scope
from kubeshard.cache.store import Store, UndeclaredIndex
from kubeshard.cache.transforms import Transform, TransformFailed
from kubeshard.cache.waiting import WaitedTooLong, wait_for
from kubeshard.cache.watchers import Complete, Vanished, WatcherEvent, watcher
from kubeshard.listwatch.reflector import Interrupted

__all__ = [
    "Added",
    "AsyncHandler",
    "Cache",
    "CacheBehind",
    "Complete",
    "Deleted",
    "Delta",
    "Handler",
    "IndexFunction",
    "Informer",
    "Interrupted",
    "OutsideScope",
    "Registration",
    "Scope",
    "Store",
    "Transform",
    "TransformFailed",
    "UndeclaredIndex",
    "UndeclaredKind",
    "Updated",
    "Vanished",
    "WaitedTooLong",
    "WatcherEvent",
    "wait_for",
    "watcher",
]
