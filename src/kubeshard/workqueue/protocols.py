"""What a controller needs of its queue.

The seam at which the first-in-first-out `WorkQueue` can be replaced by one with priorities or fairness
between namespaces.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kubeshard.workqueue.core import K


class Queue(Protocol[K]):
    """Keys waiting to be processed, each by one worker at a time.

    Guaranteed: a key is never handed out while a worker has it, a key added meanwhile is handed out again
    afterwards, and a key added several times before that is handed out once. Methods that are not async never
    wait; all belong to one event loop's thread. `reason` is for logs only.
    """

    def add(self, key: K, reason: str = "") -> None:
        """Processes the key as soon as a worker is free. Ignored after a shutdown, like all adds."""
        ...

    def add_after(self, key: K, delay: float, reason: str = "") -> None:
        """Adds the key in `delay` seconds; at once when not positive. A key that waits already is only moved
        earlier.
        """
        ...

    def add_rate_limited(self, key: K, reason: str = "") -> None:
        """Adds the key after the delay that its limiter gives, and counts a retry."""
        ...

    def forget(self, key: K) -> None:
        """The key's next rate-limited add is its first one. Removes nothing from the queue."""
        ...

    def retries(self, key: K) -> int:
        """Rate-limited adds since the key was last forgotten."""
        ...

    def reasons(self, key: K) -> tuple[str, ...]:
        """A few of the reasons for the key's present run, or for its next one when no worker has it."""
        ...

    def get(self) -> AbstractAsyncContextManager[K]:
        """`async with queue.get() as key`: waits for a key, which is this worker's until the block ends.

        Raises ShutDown when the queue is shut down and nothing is left. Cancelling a waiting worker loses no
        key.
        """
        ...

    def is_busy(self, key: K) -> bool:
        """Whether a worker has the key."""
        ...

    def shut_down(self, *, discard: bool = False) -> None:
        """Ignores adds from now on and drops what is delayed; workers get what is ready (unless `discard`),
        then ShutDown.
        """
        ...

    async def shut_down_with_drain(self) -> None:
        """`shut_down`, and waits until the workers have processed what was ready. `shut_down` ends the wait
        early.
        """
        ...

    def __len__(self) -> int:
        """Keys that a worker could take now."""
        ...
