"""What triggers the reconciliation of a Website."""

from __future__ import annotations

from collections.abc import Iterable

from kubeshard import ALL, Controller, Index, Key, Watch, when
from kubeshard.controller.mapping import Reader
from kubeshard.examples.webhosting.api import Theme, Website
from kubeshard.examples.webhosting.config import DEFAULT_WORKERS, IngressConfig
from kubeshard.examples.webhosting.reconciler import WebsiteReconciler
from kubeshard.examples.webhosting.workload import Deployment, Ingress, ServerFiles, Service, is_ready

BY_THEME = "theme"

status_changed: when.Predicate[Website] = when.changed(lambda website: website.status)


def website_controller(
    ingress: IngressConfig | None = None, *, workers: int = DEFAULT_WORKERS
) -> Controller[Website]:
    """The controller `website`. Changes to a Website's own status trigger it, so that a status written from a stale
    view is checked again. Changes to annotations trigger it so that people can request a reconcile.
    """
    return Controller(
        name="website",
        reconciler=WebsiteReconciler(ingress),
        primary=Watch(
            Website, when=when.generation_changed | when.annotations_changed | status_changed, sharded=True
        ),
        owns=(
            Watch(Deployment, when=when.generation_changed | when.changed(is_ready), sharded=True),
            Watch(ServerFiles, when=when.changed(lambda files: files.data), sharded=True),
            Watch(Service, when=when.generation_changed, sharded=True),
            Watch(Ingress, when=when.generation_changed, sharded=True),
        ),
        watches=(Watch(Theme, to=websites_using, when=when.generation_changed),),
        indexes=(Index(Website, BY_THEME, lambda website: (website.spec.theme,)),),
        workers=workers,
    )


def websites_using(reader: Reader, theme: Theme) -> Iterable[Key]:
    return [website.key for website in reader.list(Website, ALL, index=(BY_THEME, theme.metadata.name))]
