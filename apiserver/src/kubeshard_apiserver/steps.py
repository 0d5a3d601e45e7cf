"""What a write needs from outside before it can continue: the responses of admission webhooks, and time.

The verbs that write are generators: they yield a `WebhookCall`, are sent the `WebhookReply`, and return their answer.
Processing that takes long because the body is large is yielded as `Work`, and its result is sent back; a `Pause` and a
`Wait` are answered with nothing. What fails is thrown back. This keeps the model sans-IO: the driver decides how calls
are made. The front makes them over HTTP, a simulator over its own network, and `finish` makes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class WebhookCall:
    """One AdmissionReview to send. `client` is the `clientConfig` of the webhook; `timeout` is in seconds."""

    webhook: str
    client: Mapping[str, Any]
    review: Mapping[str, Any]
    timeout: float


@dataclass(frozen=True)
class WebhookReply:
    """`problem` says why there is no review to read, such as a failed connection, a timeout or an HTTP error."""

    review: Any = None
    problem: str = ""


@dataclass(frozen=True)
class Work:
    """A computation that may take seconds and touches only the request's own objects."""

    do: Callable[[], Any]


@dataclass(frozen=True)
class Pause:
    """A moment in which others may act on what was written so far."""

    seconds: float


@dataclass(frozen=True)
class Wait:
    """Something of this server that has to happen first."""

    until: Callable[[], Awaitable[None]]


Step = WebhookCall | Work | Pause | Wait
Steps = Generator[Step, Any, T]
Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work where it blocks nobody, and raises what the work raises."""


async def at_once(work: Callable[[], T]) -> T:
    """An `Offload` that runs the work in place, for callers that need the same order in every run."""
    return work()


def done(do: Callable[[], T], *, large: bool) -> Steps[T]:
    """Returns the result of `do`, which is run off the event loop if `large` is set."""
    if not large:
        return do()
    result: T = yield Work(do)
    return result


class WebhookCaller(Protocol):
    """Calls webhooks. Never raises: a failed call returns a reply with a problem."""

    async def call(self, call: WebhookCall) -> WebhookReply: ...


_NOT_MADE = WebhookReply(problem="this server makes no calls")


class NoCalls:
    """A caller whose every call fails, as if the webhook were unreachable."""

    async def call(self, call: WebhookCall) -> WebhookReply:
        return _NOT_MADE


def finish(steps: Steps[T]) -> T:
    """Runs a write to completion without making calls or pauses: every call fails, as if the webhook were
    unreachable.
    """
    try:
        wanted = next(steps)
        while True:
            match wanted:
                case Work():
                    wanted = _worked(steps, wanted)
                case Pause():
                    wanted = next(steps)
                case _:
                    wanted = steps.send(_NOT_MADE)
    except StopIteration as end:
        value: T = end.value
        return value


def _worked(steps: Steps[T], work: Work) -> Step:
    try:
        result = work.do()
    except Exception as error:
        return steps.throw(error)
    return steps.send(result)


async def perform(
    steps: Steps[T], caller: WebhookCaller, offload: Offload = at_once, reached: Step | None = None
) -> T:
    """Runs the steps to completion. `reached`: the step at which they wait already."""
    try:
        wanted = reached or next(steps)
        while True:
            try:
                result = await _taken(wanted, caller, offload)
            except Exception as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()  # at once if the client has gone


async def _taken(step: Step, caller: WebhookCaller, offload: Offload) -> Any:
    match step:
        case WebhookCall():
            return await caller.call(step)
        case Work():
            return await offload(step.do)
        case Pause():
            return await asyncio.sleep(step.seconds)
        case Wait():
            return await step.until()
