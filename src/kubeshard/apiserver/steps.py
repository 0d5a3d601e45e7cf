"""What a write needs from outside before it can go on: answers of admission webhooks.

The verbs that write are generators: they yield a `WebhookCall`, are sent the `WebhookReply`, and return their
answer. So the model stays sans-IO, and who drives it decides how calls are made: the front over HTTP, a
simulator over its own network, `finish` not at all.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
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


Steps = Generator[WebhookCall, WebhookReply, T]


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
        next(steps)
        while True:
            steps.send(_NOT_MADE)
    except StopIteration as end:
        value: T = end.value
        return value


async def perform(steps: Steps[T], caller: WebhookCaller) -> T:
    try:
        call = next(steps)
        while True:
            call = steps.send(await caller.call(call))
    except StopIteration as end:
        value: T = end.value
        return value
