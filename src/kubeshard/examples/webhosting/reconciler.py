"""The controller `website`: makes a Website's four objects so and reports its phase (protocol 9.2)."""

from __future__ import annotations

import msgspec

from kubeshard.controller import Context, Reconciler, Result
from kubeshard.controller.ensure import ensure
from kubeshard.core import AlreadyExists, Conflict, JsonPatch, KubeshardError
from kubeshard.core.patches import add
from kubeshard.core.times import micro_time
from kubeshard.examples.webhosting import children
from kubeshard.examples.webhosting.api import ERROR, PENDING, READY, TERMINATING, Theme, Website
from kubeshard.examples.webhosting.config import IngressConfig
from kubeshard.examples.webhosting.workload import Ingress, is_ready


class ThemeNotFound(KubeshardError):
    """The Website names a Theme that does not exist (yet)."""


class WebsiteReconciler(Reconciler[Website]):
    """One Website at a time: ConfigMap, Service, Ingress, Deployment, then the status.

    A stale cache (`Conflict`, `AlreadyExists`) is retried without touching the status; any other failure
    shows as phase Error and is retried with backoff. A Website without a theme is in phase Error until its
    spec changes.
    """

    def __init__(self, ingress: IngressConfig | None = None) -> None:
        self._ingress = ingress or IngressConfig()

    async def reconcile(self, ctx: Context, website: Website) -> Result | None:
        try:
            phase = await self._phase(ctx, website)
        except (Conflict, AlreadyExists):
            raise
        except Exception:
            await self._write_status(ctx, website, ERROR)
            raise
        await self._write_status(ctx, website, phase)
        return None

    async def _phase(self, ctx: Context, website: Website) -> str:
        if website.metadata.deleting:
            # Seen with foreground deletion only: the garbage collector removes what the Website owns.
            return TERMINATING
        if not website.spec.theme:
            ctx.event(
                website, "Warning", "ThemeUnspecified", "Website doesn't specify a Theme", action="Reconcile"
            )
            ctx.log.warning("website has no theme")
            return ERROR
        theme = await ctx.get(Theme, website.spec.theme)
        if theme is None:
            message = f"Theme {website.spec.theme} not found"
            ctx.event(website, "Warning", "ThemeNotFound", message, action="Reconcile")
            raise ThemeNotFound(message)
        return READY if await self._ensure_children(ctx, website, theme) else PENDING

    async def _ensure_children(self, ctx: Context, website: Website, theme: Theme) -> bool:
        """Whether the website's Deployment is ready, once all objects are as they should be."""
        step = "ConfigMap"
        try:
            files, _ = await ensure(ctx, children.config_map(website, theme), owner=website)
            step = "Service"
            await ensure(ctx, children.service(website), owner=website)
            step = "Ingress"
            live = await ctx.get(Ingress, children.server_name(website), website.metadata.namespace)
            await ensure(ctx, children.ingress(website, self._ingress, live), owner=website)
            step = "Deployment"
            deployment, _ = await ensure(ctx, children.deployment(website, files), owner=website)
        except (Conflict, AlreadyExists):
            raise
        except Exception as error:
            ctx.event(
                website,
                "Warning",
                "ReconcilerError",
                f"Error reconciling {step}: {error}",
                action="Reconcile",
            )
            raise
        return is_ready(deployment)

    async def _write_status(self, ctx: Context, website: Website, phase: str) -> None:
        """One JSON Patch of the whole status, and only if something changed. No resourceVersion: the shard
        label that the fenced client tests is the precondition that matters, and observedGeneration says which
        spec the status is about.
        """
        current = website.status
        status = msgspec.structs.replace(
            current, observed_generation=website.metadata.generation, phase=phase
        )
        if status == current:
            return
        status = msgspec.structs.replace(status, last_transition_time=micro_time(ctx.clock.wall()))
        await ctx.client.patch(
            Website,
            website.metadata.name,
            website.metadata.namespace,
            JsonPatch([add("/status", msgspec.to_builtins(status))]),
            subresource="status",
        )
