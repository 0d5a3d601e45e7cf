"""What a write needs from outside before it can go on: answers of admission webhooks, and time.

The verbs that write are generators: they yield a `WebhookCall`, are sent the `WebhookReply`, and return their
answer. What takes long because a body is large they yield as `Work`, and are sent its result. So the model stays
sans-IO, and who drives it decides how calls are made: the front over HTTP, a simulator over its own network,
`finish` not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class WebhookCall:
    """One AdmissionReview to be sent. `client` is the `clientConfig` of the webhook, `timeout` in seconds."""

    webhook: str
    client: Mapping[str, Any]
    review: Mapping[str, Any]
    timeout: float


@dataclass(frozen=True)
class WebhookReply:
    """`problem` says why there is no review to read: no connection, a timeout, an HTTP error."""

    review: Any = None
    problem: str = ""


@dataclass(frozen=True)
class Work:
    """Something that may take seconds and touches nothing but the request's own objects."""

    do: Callable[[], Any]


Steps = Generator[WebhookCall | Work, Any, T]
Aside = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Does work where it holds nobody up, and raises what the work raises."""


async def at_once(work: Callable[[], T]) -> T:
    """An `Aside` for those who want the same order in every run."""
    return work()


def done(do: Callable[[], T], *, large: bool) -> Steps[T]:
    """The result of `do`; aside where it is `large`."""
    if not large:
        return do()
    result: T = yield Work(do)
    return result


class WebhookCaller(Protocol):
    """Carries calls out. Never raises: what fails is a reply with a problem."""

    async def call(self, call: WebhookCall) -> WebhookReply: ...


_NOT_MADE = WebhookReply(problem="this server makes no calls")


class NoCalls:
    """Every call fails, as if nothing listened there."""

    async def call(self, call: WebhookCall) -> WebhookReply:
        return _NOT_MADE


def finish(steps: Steps[T]) -> T:
    """Drives a write to its end where nobody makes calls: every call fails, as if nothing listened there."""
    try:
        wanted = next(steps)
        while True:
            wanted = _worked(steps, wanted) if isinstance(wanted, Work) else steps.send(_NOT_MADE)
    except StopIteration as end:
        value: T = end.value
        return value


def _worked(steps: Steps[T], work: Work) -> WebhookCall | Work:
    try:
        result = work.do()
    except Exception as error:
        return steps.throw(error)
    return steps.send(result)


async def perform(steps: Steps[T], caller: WebhookCaller, aside: Aside = at_once) -> T:
    try:
        wanted = next(steps)
        while True:
            if not isinstance(wanted, Work):
                wanted = steps.send(await caller.call(wanted))
                continue
            try:
                result = await aside(wanted.do)
            except Exception as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
