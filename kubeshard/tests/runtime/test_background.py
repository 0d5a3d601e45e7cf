"""Objects that live in the event loop of a thread, as seen by the thread that uses them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeshard.runtime.background import in_background


class Lingering(threading.Thread):
    """Has finished its work, but is alive until it is joined."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._joined = threading.Event()

    def run(self) -> None:
        super().run()
        self._joined.wait()

    def join(self, timeout: float | None = None) -> None:
        self._joined.set()
        super().join(timeout)


def test_what_cannot_be_entered_raises_its_own_error_while_the_thread_still_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def refused() -> AsyncIterator[None]:
        raise OSError("the port is taken")
        yield

    monkeypatch.setattr(threading, "Thread", Lingering)
    with pytest.raises(OSError, match="the port is taken"), in_background(refused, "refused"):
        pass
