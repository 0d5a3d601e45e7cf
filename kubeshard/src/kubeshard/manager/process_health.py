"""Whether this process is fit to work: it hears from an API server, and its workers can be replaced when their runs do
not end. That its event loop is not blocked shows when it answers (`leases.renewer` asks it).

An unfit process must not renew its Lease, although the thread that renews it is fine. Liveness (`/healthz`) only covers
what a restart would fix: workers, but never silence, whose cause may be the server.

| unfit when | noticed |
|---|---|
| the event loop is blocked, or the process was paused | at the next renewal, which waits for it |
| no server has responded about any kind that the process reconciles, not even with an error | after 90 s |
| more reconciles of a controller ignore their cancellation than it tolerates (`controller.deadlines`) | at once |

What concerns one kind or one object never makes the process unfit, because others would pay for it. A process that
hears about no kind is useless to its objects: as a dead shard, it lets others have them, if they hear more. A kind that
cannot be read, whether the server responds with errors or not at all, costs its own objects only: its controllers pause
(`controller.syncing`, docs/design/outages.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeshard.controller.syncing import SILENCE
from kubeshard.runtime.clock import Clock


class ProcessHealth:
    """`heard` returns what the process depends on, as something with a name that does not change, and when a server
    last responded about it, or None for never; the process is fit while it hears about any of it. `hanging` returns
    what is wrong with the workers.
    """

    def __init__(
        self,
        clock: Clock,
        heard: Callable[[], Iterable[tuple[object, float | None]]],
        hanging: Callable[[], Iterable[str]],
    ) -> None:
        self._clock = clock
        self._heard = heard
        self._hanging = hanging

    def unfit(self) -> str | None:
        """Why the process is unfit, or None. To be called in its event loop."""
        return self.silence() or self.hanging()

    def silence(self) -> str | None:
        """Why the caches cannot be trusted, or None."""
        heard = [(time, name) for name, time in self._heard() if time is not None]
        if not heard:
            return None
        time, name = max(heard, key=lambda each: each[0])
        if (silent := self._clock.monotonic() - time) > SILENCE:
            return (
                f"no API server has responded for {silent:.0f} s about any kind that this process reconciles, "
                f"{name} being the last"
            )
        return None

    def hanging(self) -> str | None:
        """Why the workers cannot be trusted, or None."""
        return next(iter(self._hanging()), None)
