"""What a manager runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubeshard.runtime.world import World
from kubeshard.tenure.tenure import Gate


@dataclass(frozen=True, slots=True)
class Runnable:
    """Anything that runs until it is cancelled, beside the controllers. Returning is fine; an exception stops the
    process, gracefully. It is cancelled when all controllers have ended; until then it may rely on the caches.
    `needs_leadership`: runs in one process at a time.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    needs_leadership: bool = False


class Server(Protocol):
    """Something that listens, such as a webhook server: starts before the caches, ends after them."""

    async def run(self, world: World) -> None:
        """Serves until cancelled."""
        ...


class Work(Protocol):
    """What a shift consists of. `ControllerRunner` is one."""

    @property
    def name(self) -> str: ...

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        """Works until cancelled, which ends it at once."""
        ...

    async def drain(self) -> None:
        """Begins nothing new, and returns when nothing is under way any more."""
        ...


class RunnableWork:
    """A Runnable as Work: nothing to drain, it ends by being cancelled."""

    def __init__(self, runnable: Runnable) -> None:
        self.name = runnable.name
        self._run = runnable.run

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        await self._run()

    async def drain(self) -> None:
        return None
