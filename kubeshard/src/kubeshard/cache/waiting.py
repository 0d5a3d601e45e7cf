"""Waiting until an object meets a condition, with one watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar, overload

from kubeshard.cache.watchers import Complete, Vanished, watcher
from kubeshard.client.client import Client
from kubeshard.client.watching import Changed, Failed
from kubeshard.core.errors import ApiError, Forbidden, KubeshardError, NotFound, Unauthorized
from kubeshard.core.namespaces import namespace_of
from kubeshard.core.objects import Form, KubeObject, form_of
from kubeshard.core.selectors import FieldSelector
from kubeshard.core.until import WaitCondition
from kubeshard.listwatch.reflector import Interrupted

T = TypeVar("T", bound=KubeObject)


class WaitedTooLong(KubeshardError, TimeoutError):
    """The object did not meet the condition in time. The message says what it was instead."""


@overload
async def wait_for(client: Client, target: T, until: WaitCondition, *, timeout: float) -> T | None: ...


@overload
async def wait_for(
    client: Client,
    target: type[T] | Form[T],
    until: WaitCondition,
    *,
    name: str,
    namespace: str | None = None,
    timeout: float,
) -> T | None: ...


async def wait_for(
    client: Client,
    target: T | type[T] | Form[T],
    until: WaitCondition,
    *,
    name: str = "",
    namespace: str | None = None,
    timeout: float,
) -> T | None:
    """Waits for the first state of the object that meets the condition, and returns it, or None if the condition is met
    by there being no object.

    `target` is an object, which is only used for its name, or a class with `name` and `namespace`. Conditions are in
    `kubeshard.until`. It does not poll: it opens one watch for the object, and reopens it when it breaks.

    Raises WaitedTooLong after `timeout` seconds, and immediately what waiting cannot fix: Forbidden, Unauthorized,
    UndecodableObject, exceptions of the condition, and TypeError for a class that does not declare what the condition
    reads. A kind that is not served has no objects yet. Not guaranteed: that a short-lived state is seen, or that the
    object is still as returned. RBAC: `list` and `watch` on the kind.
    """
    if isinstance(target, KubeObject):
        form = form_of(type(target))
        name, namespace = target.metadata.name, target.metadata.namespace or None
    else:
        form = form_of(target)
    if not name:
        raise ValueError(f"{form.kind}: specify which object to wait for: name=...")
    place = namespace_of(form.kind, name, namespace)
    until.check(form.type)
    where = f"{place}/{name}" if place else name
    last = _Last()
    try:
        async with (
            asyncio.timeout(timeout) as limit,
            aclosing(_states(client, form, name, place, last)) as states,
        ):
            async for state in states:
                if until.met(state):
                    return state
                last.text = until.seen(state)
    except TimeoutError:
        if not limit.expired():
            raise
        raise WaitedTooLong(
            f"{form.kind} {where}: not {until.text} after {timeout:g} s: {last}"
        ) from last.error
    raise AssertionError("a watch ends only with an error")


class _Last:
    text = ""
    error: ApiError | None = None

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.text, str(self.error or "")))) or "the server has not responded"


async def _states(
    client: Client, form: Form[T], name: str, namespace: str, last: _Last
) -> AsyncGenerator[T | None, None]:
    """Each state of the object; None while it does not exist."""
    state: T | None = None
    known = False
    selector = FieldSelector.equals("metadata.name", name)
    async with aclosing(watcher(client, form, namespace or None, field_selector=selector)) as events:
        async for event in events:
            match event:
                case Changed("DELETED", _) | Vanished():
                    state = None
                case Changed(_, obj):
                    state, known = obj, True
                case Complete():
                    known = True
                case Failed(_, undecodable):
                    raise undecodable
                case Interrupted(Forbidden() | Unauthorized() as refused, _):
                    raise refused
                case Interrupted(NotFound() as error, _):
                    state, known, last.error = None, True, error
                case Interrupted(error, _):
                    last.error = error
                    continue
            if not isinstance(event, Interrupted):
                last.error = None
            if known:
                yield state
