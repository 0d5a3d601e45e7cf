"""Work that must not end, and must not end others: after an unexpected exception it starts again.

Guaranteed: an exception costs nobody but the work that raised it, which starts again after 1, 2, 4, 8, 10, 10 ... s,
and after 1 s if it had gone well for a minute. Each crash is counted; it is logged with its stack trace when it is a
new one (another exception, or another line), and then every ten minutes, with a count. Cancellation ends the work.

Not guaranteed: that the work continues where it was. It must find what it missed by itself. Expected errors of the API
server are the work's own concern: it knows what they mean, and says so in one line.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from kubeshard.runtime.backoff import Backoff, BackoffPolicy
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart
from kubeshard.runtime.notices import Notices

RESTARTS = BackoffPolicy(initial=1.0, cap=10.0, jitter=0.0, reset_after=math.inf)
STEADY = 60.0
"""Seconds without a crash after which the next one counts as the first."""
LOGGED_EVERY = 600.0

_log = get_logger("kubeshard.sharder")


async def supervised(
    work: Callable[[], Awaitable[None]],
    part: str,
    *,
    crashed: Callable[[], None],
    clock: Clock,
    **fields: object,
) -> None:
    """Runs `work` until it returns, see the module. `crashed` counts; `part` and `fields` are for the log."""
    backoff, notices = Backoff(RESTARTS), Notices(clock, every=LOGGED_EVERY)
    while True:
        began = clock.monotonic()
        try:
            return await apart(work)
        except Exception as error:
            now = clock.monotonic()
            if now - began >= STEADY:
                backoff.reset()
            pause = backoff.failed(now)
            crashed()
            if (before := notices.held_back(part, _place(error))) is not None:
                tell_crash(error, part, again_in=pause, crashes_before=before, **fields)
        await asyncio.sleep(pause)


def tell_crash(error: Exception, part: str, **fields: object) -> None:
    """Logs that a part crashed and goes on."""
    _log.crash("A part of the sharder crashed; it starts again", error, part=part, **fields)


def _place(error: BaseException) -> str:
    """Which exception, raised where."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace, place = error.__traceback__, ""
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    return f"{type(error).__name__} {place}"
