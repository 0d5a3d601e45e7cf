"""A reconciler that only declares which objects should exist for an object."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from kubeshard.controller.context import Context
from kubeshard.controller.desired.execution import Immutable
from kubeshard.controller.desired.order import Placed
from kubeshard.controller.desired.plan import Applied, Unowned
from kubeshard.controller.finalizers import Finalizer
from kubeshard.controller.functions import takes_two
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

Generate = Callable[[Context, T], AsyncIterable[Placed] | Awaitable[Iterable[Placed]]]
"""An `async def` function that yields or returns the objects that should exist for an object, with their order."""

Then = Callable[[Context, T, Applied], Awaitable[Result | None]]
"""Called with the objects as they are after they have been applied, for example to call `ctx.status(...)`."""


class Generator(Reconciler[T]):
    """A reconciler that only declares which objects should exist for an object.

        async def pages(ctx: Context, page: Page) -> AsyncIterator[KubeObject]:
            yield ConfigMap(...)
            if page.spec.public:
                yield Ingress(...)

        Controller(name="page", reconciler=Generator(pages), primary=Page, applies=[ConfigMap, Ingress])

    The yielded objects are the desired set of the object (`ctx.apply`, `kubeshard.controller.desired`): they are
    created or updated, and those that were yielded before and no longer are get pruned. Also guaranteed: if the
    function raises, nothing is applied or deleted, however much it had yielded; a function that returns None has
    forgotten something, which is an error and not an empty set.

    When the object is deleted, the garbage collector deletes what refers to it: all generated objects in its namespace,
    or all generated objects if it is cluster-scoped. For other objects, give the controller the finalizer that
    `cleanup` returns.

    `then` is called with the result of `ctx.apply`, and returns the result of the run. `set`, `unowned`, `immutable`
    and RBAC: see `ctx.apply`.
    """

    def __init__(
        self,
        generate: Generate[T],
        *,
        then: Then[T] | None = None,
        set: str = "",
        unowned: Unowned = "refuse",
        immutable: Immutable = "refuse",
    ) -> None:
        for function in (generate, then):
            if function is not None and not callable(function):
                raise TypeError(f"{function!r} is not a function of (ctx, obj)")
        if not takes_two(generate):
            raise TypeError(f"{generate!r} takes other arguments than (ctx, obj)")
        self._generate = generate
        self._then = then
        self._set = set
        self._unowned: Unowned = unowned
        self._immutable: Immutable = immutable

    async def reconcile(self, ctx: Context, obj: T, /) -> Result | None:
        """Generates nothing for an object that is being deleted: its objects are deleted with it."""
        if obj.metadata.deleting:
            return None
        wanted = await self._wanted(ctx, obj)
        applied = await ctx.apply(
            *wanted, owner=obj, set=self._set, unowned=self._unowned, immutable=self._immutable
        )
        return None if self._then is None else await self._then(ctx, obj, applied)

    def cleanup(self, key: str) -> Finalizer[T]:
        """`Finalizer.deleting_members` for what was generated."""
        return Finalizer.deleting_members(key, self._set)

    async def _wanted(self, ctx: Context, obj: T) -> list[Placed]:
        found: Any = self._generate(ctx, obj)
        if isinstance(found, AsyncIterable):
            return [each async for each in found]
        if isinstance(found, Awaitable):
            found = await found
        if isinstance(found, Iterable) and not isinstance(found, str | bytes):
            return list(found)
        name = getattr(self._generate, "__qualname__", None) or repr(self._generate)
        raise TypeError(
            f"{name} returned {found!r}: yield the objects, or return a list of them, which may be empty"
        )
