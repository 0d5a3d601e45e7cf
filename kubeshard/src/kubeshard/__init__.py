"""Kubernetes controllers that scale out: what the author of an operator needs, in one import line.

    from kubeshard import Context, Controller, KubeObject, Manager, Reconciler, Result, Struct, Watch, ensure, run

What is here is public and stable (docs/public-interface.md). Guaranteed: importing this package loads nothing else
of it; a name is loaded with what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module

_HOMES = {
    "cache.scope": ("Scope",),
    "cache.waiting": ("wait_for",),
    "cache.watchers": ("watcher",),
    "client.client": ("Client",),
    "controller": ("when",),
    "controller.context": ("Context",),
    "controller.controller": ("Controller",),
    "controller.daemons": ("Daemon",),
    "controller.dependents": ("EnsureResult", "ensure"),
    "controller.desired.inherited_labels": ("labels_to_inherit",),
    "controller.desired.order": ("Ordered",),
    "controller.desired.plan": ("Applied", "Plan"),
    "controller.finalizers": ("Finalizer",),
    "controller.generator": ("Generator",),
    "controller.every_kind": ("EveryKind",),
    "controller.reconciler": ("BlockingReconciler", "Reconciler", "Result"),
    "controller.watch": ("Index", "Watch", "related"),
    "": ("errors",),
    "core": ("until",),
    "core.builtin": ("ConfigMap",),
    "core.clusters": ("EVERY_CLUSTER", "HOME_CLUSTER", "OTHER_CLUSTERS"),
    "core.conditions": ("Condition",),
    "core.grants": ("Grant",),
    "core.names": ("safe_name",),
    "core.namespaces": ("ALL",),
    "core.objects": (
        "Key",
        "KubeObject",
        "Meta",
        "ObjectMeta",
        "Struct",
        "field",
        "metadata_only",
        "replace",
    ),
    "core.patches": ("MergePatch",),
    "core.readiness": ("is_ready",),
    "core.selectors": ("FieldSelector", "Selector"),
    "manager.declaration": ("CacheSettings",),
    "manager.leader_election": ("LeaderElection",),
    "manager.manager": ("Manager",),
    "manager.pages": ("StatusPages",),
    "manager.program": ("run",),
    "manager.settings": ("Settings",),
    "shard.sharding": ("Sharding",),
    "version": ("__version__",),
}
"""Where each public name is. `__init__.pyi` says the same to type checkers and editors."""

__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            place = import_module(f"{__name__}.{home}" if home else f"{__name__}.{name}")
            value: object = getattr(place, name) if home else place
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
