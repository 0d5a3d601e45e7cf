"""How a program ends after a fatal error: a human-readable line and an exit code; and the end of its main task.

| error | code | the line |
|---|---|---|
| ConfigurationError | 2 | its message, which says what to do |
| Unprepared | 1 | its message, which says what to do |
| RightLost | 1 | its message; started again, the program is a candidate again |
| Unauthorized | 1 | the credentials are rejected, and which ones to renew |
| Unavailable, Timeout without a response | 1 | the cluster cannot be reached, and at which address |
| Forbidden | 1 | the server's message, which names user, verb and resource; the role or credentials that are missing |
| any other KubeshardError | 1 | its class and message |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn

from kubeshard.core.errors import (
    ANONYMOUS,
    NO_CREDENTIALS,
    ApiError,
    ConfigurationError,
    Forbidden,
    KubeshardError,
    Timeout,
    Unauthorized,
    Unavailable,
    Unprepared,
)
from kubeshard.manager.membership import RightLost
from kubeshard.manager.runnable import Stop
from kubeshard.runtime.logs import error_line, get_logger, one_line

_log = get_logger("kubeshard.manager")


TELL_AFTER = 3.0
"""Seconds after which a waiting stop logs what it waits for."""

TELL_AGAIN = 10.0


class Ending(NamedTuple):
    code: int
    line: str


def ending_of(error: KubeshardError) -> Ending:
    """The exit code and line for an error: see the table."""
    if isinstance(error, ConfigurationError):
        return Ending(2, f"Error: {error}")
    return Ending(1, f"Error: {_explained(error)}")


def _explained(error: KubeshardError) -> str:
    said = one_line(str(error))
    match error:
        case Unprepared() | RightLost():
            return said
        case Unauthorized():
            return (
                f"the cluster refuses the credentials ({said}): log in again, or renew the token or certificate "
                "in the kubeconfig (in a pod: check its service account)"
            )
        case Forbidden() if ANONYMOUS in said:
            return f"{said}; {NO_CREDENTIALS}"
        case Forbidden():
            return f"{said}; bind a role that grants this to the user, or use another one"
        case Unavailable(code=0) | Timeout(code=0):
            return (
                f"cannot reach the cluster ({said}): check the server and the certificate authority in the kubeconfig, "
                "the network and the proxy"
            )
        case ApiError(code=code) if code >= 500:
            return f"the cluster is in trouble ({error_line(error)}): try again later"
        case _:
            return error_line(error)


async def end_of(task: asyncio.Task[None]) -> None:
    """Waits for the task. If this is cancelled, cancels the task."""
    try:
        await asyncio.wait([task])
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            _log.error("Failed while stopping", error=error)


async def tell_what_lasts(stop: Stop, lasting: Callable[[], Iterable[str]]) -> NoReturn:
    """Logs what a stop waits for, as `lasting` reports it, until cancelled."""
    await stop.wait()
    seconds = TELL_AFTER
    await asyncio.sleep(TELL_AFTER)
    while True:
        waits_for = "; ".join(lasting()) or "Leases, servers and connections to close"
        _log.info("Still stopping", waits_for=waits_for, seconds=seconds, grace=stop.grace)
        await asyncio.sleep(TELL_AGAIN)
        seconds += TELL_AGAIN


def single(error: BaseException | None) -> BaseException:
    """The error itself, without the groups that task groups put around it."""
    assert error is not None
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
