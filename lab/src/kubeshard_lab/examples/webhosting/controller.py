"""The controller `website`: what triggers it, how it applies a Website's four objects, and how it reports the phase."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from kubeshard import (
    ALL,
    Context,
    Controller,
    EnsureResult,
    Index,
    Key,
    KubeObject,
    Reconciler,
    Result,
    Watch,
    ensure,
    when,
)
from kubeshard.controller.mapping import Reader
from kubeshard.controller.outcomes import STALE
from kubeshard.core.errors import KubeshardError
from kubeshard.core.patches import JsonPatch, add
from kubeshard.core.times import micro_time
from kubeshard_lab.examples.webhosting import children
from kubeshard_lab.examples.webhosting.api import ERROR, PENDING, READY, TERMINATING, Theme, Website
from kubeshard_lab.examples.webhosting.config import DEFAULT_WORKERS, IngressConfig
from kubeshard_lab.examples.webhosting.workload import Deployment, Ingress, ServerFiles, Service, is_ready

BY_THEME = "theme"

T = TypeVar("T", bound=KubeObject)


def website_controller(
    ingress: IngressConfig | None = None, *, workers: int = DEFAULT_WORKERS
) -> Controller[Website]:
    """The controller `website`. Changes that others make to a Website's status trigger it, so that one written from a
    stale view is checked again. Changes to annotations trigger it so that people can request a reconcile.
    """
    status: when.Predicate[Website] = when.changed(lambda website: website.status)
    changed = when.generation_changed | when.annotations_changed | status
    ready = when.generation_changed | when.changed(is_ready)
    return Controller(
        name="website",
        reconciler=WebsiteReconciler(ingress),
        primary=Watch(Website, when=changed, sharded=True, echoes=False),
        owns=(
            Watch(Deployment, when=ready, sharded=True, echoes=False),
            Watch(ServerFiles, when=when.changed(lambda files: files.data), sharded=True, echoes=False),
            Watch(Service, when=when.generation_changed, sharded=True, echoes=False),
            Watch(Ingress, when=when.generation_changed, sharded=True, echoes=False),
        ),
        watches=(Watch(Theme, to=websites_using, when=when.generation_changed),),
        indexes=(Index(Website, BY_THEME, lambda website: (website.spec.theme,)),),
        workers=workers,
    )


def websites_using(reader: Reader, theme: Theme) -> Iterable[Key]:
    return [website.key for website in reader.list(Website, ALL, index=(BY_THEME, theme.metadata.name))]


class ThemeNotFound(KubeshardError):
    """The Website names a Theme that does not exist (yet)."""


class WebsiteReconciler(Reconciler[Website]):
    """Stale reads are repeated; other failures are phase Error, and retried unless a theme is missing."""

    def __init__(self, ingress: IngressConfig | None = None) -> None:
        self._ingress = ingress or IngressConfig()

    async def reconcile(self, ctx: Context, website: Website) -> Result | None:
        try:
            phase = await self._phase(ctx, website)
        except STALE:
            raise
        except Exception as error:
            try:
                await self._write_status(ctx, website, ERROR)
            except Exception as second:
                raise ExceptionGroup("reconciling and reporting the failure", [error, second]) from None
            raise
        await self._write_status(ctx, website, phase)
        return None

    async def _phase(self, ctx: Context, website: Website) -> str:
        if website.metadata.deleting:
            # Only visible during foreground deletion: the garbage collector removes what the Website owns.
            return TERMINATING
        if not website.spec.theme:
            _warn(ctx, website, "ThemeUnspecified", "Website doesn't specify a Theme")
            ctx.log.error("Website has no theme")
            return ERROR
        theme = await self._theme(ctx, website)
        return READY if await self._ensure_children(ctx, website, theme) else PENDING

    async def _theme(self, ctx: Context, website: Website) -> Theme:
        name = website.spec.theme
        try:
            theme = await ctx.get(Theme, name)
        except STALE:
            raise
        except Exception as error:
            _warn(ctx, website, "ReconcilerError", f"Error getting Theme {name}: {error}")
            raise
        if theme is None:
            message = f"Theme {name} not found"
            _warn(ctx, website, "ThemeNotFound", message)
            raise ThemeNotFound(message)
        return theme

    async def _ensure_children(self, ctx: Context, website: Website, theme: Theme) -> bool:
        """Applies all objects and returns whether the website's Deployment is ready."""
        name, namespace = children.server_name(website), website.metadata.namespace
        files = await _ensure(ctx, website, children.config_map(website, theme))
        await _ensure(ctx, website, children.service(website))
        route = await ctx.get(Ingress, name, namespace, ours=True)
        await _ensure(ctx, website, children.ingress(website, self._ingress, route))
        server = await ctx.get(Deployment, name, namespace, ours=True)
        return is_ready(await _ensure(ctx, website, children.deployment(website, files, server)))

    async def _write_status(self, ctx: Context, website: Website, phase: str) -> None:
        """One JSON Patch of the status, if it changed. The fence proves what it has to."""
        meta, current = website.metadata, website.status
        status = msgspec.structs.replace(current, observed_generation=meta.generation, phase=phase)
        if status == current:
            return
        status = msgspec.structs.replace(status, last_transition_time=micro_time(ctx.clock.wall()))
        patch = JsonPatch([add("/status", msgspec.to_builtins(status))])
        await ctx.client.patch(Website, meta.name, meta.namespace, patch, subresource="status", base=website)


async def _ensure(ctx: Context, website: Website, desired: T) -> T:
    kind = desired.KIND.kind
    try:
        obj, outcome = await ensure(ctx, desired, owner=website)
    except STALE:
        raise
    except Exception as error:
        _warn(ctx, website, "ReconcilerError", f"Error reconciling {kind}: {error}")
        raise
    if outcome is not EnsureResult.UNCHANGED:
        ctx.log.debug("Reconciled child", kind=kind, result=outcome.value)
    return obj


def _warn(ctx: Context, website: Website, reason: str, message: str) -> None:
    ctx.event(website, "Warning", reason, message, action="Reconcile")
