"""Generators: reconcilers that only say which objects should exist because of one.

    async def pages(ctx: Context, page: Page) -> AsyncIterator[KubeObject]:
        yield ConfigMap(...)
        if page.spec.public:
            yield Ingress(...)

    Controller(name="page", reconciler=Generator(pages), primary=Page, owns=[ConfigMap, Ingress])

What is yielded is the desired set of the object (`ctx.apply`, `kubeshard.controller.desired`): it is made so, and what
was yielded before and is not any more is deleted. Guaranteed besides: nothing is applied, and nothing deleted, of a run
in which the function raises, however much it had yielded; a function that returns None has forgotten something, and is
an error instead of an empty set.

When the object goes, the garbage collector deletes what refers to it: all objects in its namespace, and of a
cluster-scoped object all. Of others it knows nothing: for those give the controller the finalizer of `cleanup`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from kubeshard.controller.context import Context
from kubeshard.controller.desired.plan import Applied
from kubeshard.controller.desired.planning import Unowned
from kubeshard.controller.desired.sets import Immutable
from kubeshard.controller.finalizers import Finalizer
from kubeshard.controller.reconciler import Reconciler, Result, takes_two
from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

Generate = Callable[[Context, T], AsyncIterable[KubeObject] | Awaitable[Iterable[KubeObject]]]
"""The objects that should exist because of one: an `async def` function that yields them or returns them."""

Then = Callable[[Context, T, Applied], Awaitable[Result | None]]
"""What is done after they have been applied: `ctx.status(...)`, with the objects as they are now."""


class Generator(Reconciler[T]):
    """The reconciler of a function that generates objects. `then` is called with what `ctx.apply` did, and says how the
    run ends; `set`, `unowned` and `immutable` are as of `ctx.apply`. RBAC: as of `ctx.apply`.
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
        """Nothing is generated for an object that is being deleted: what there is goes with it."""
        if obj.metadata.deleting:
            return None
        wanted = await self._wanted(ctx, obj)
        applied = await ctx.apply(
            *wanted, owner=obj, set=self._set, unowned=self._unowned, immutable=self._immutable
        )
        return None if self._then is None else await self._then(ctx, obj, applied)

    def cleanup(self, key: str) -> Finalizer[T]:
        """A finalizer for `Controller.finalizers` that deletes what was generated, wherever it is, before the object
        goes. It does not wait for the finalizers of others on what it deletes.
        """

        async def delete_all(ctx: Context, obj: T) -> None:
            await ctx.apply(owner=obj, set=self._set)

        return Finalizer(key, delete_all)

    async def _wanted(self, ctx: Context, obj: T) -> list[KubeObject]:
        found: Any = self._generate(ctx, obj)
        if isinstance(found, AsyncIterable):
            return [each async for each in found]
        if isinstance(found, Awaitable):
            found = await found
        if isinstance(found, Iterable) and not isinstance(found, str | bytes):
            return list(found)
        name = getattr(self._generate, "__qualname__", None) or repr(self._generate)
        raise TypeError(
            f"{name} gave {found!r}: yield the objects, or return a list of them, which may be empty"
        )
