"""Kubernetes controllers that scale out: what the author of an operator needs, in one import line.

    from kubeshard import Context, Controller, KubeObject, Manager, Reconciler, Result, Struct, Watch, ensure, run

What is here is public and stable (docs/public-interface.md). Guaranteed: importing this package loads nothing else
of it; a name is loaded with what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module

# Type checkers know the name; to import it from `typing` would be most of what this module costs.
TYPE_CHECKING = False

if TYPE_CHECKING:  # what type checkers and editors read; `_HOMES` says the same to the interpreter
    from kubeshard import errors
    from kubeshard.cache.scope import Scope
    from kubeshard.cache.waiting import wait_for
    from kubeshard.cache.watchers import watcher
    from kubeshard.client.client import Client
    from kubeshard.controller import when
    from kubeshard.controller.context import Context
    from kubeshard.controller.controller import Controller
    from kubeshard.controller.daemons import Daemon
    from kubeshard.controller.dependents import EnsureResult, ensure
    from kubeshard.controller.desired.inherited_labels import labels_to_inherit
    from kubeshard.controller.desired.order import Ordered
    from kubeshard.controller.desired.plan import Applied, Plan
    from kubeshard.controller.every_kind import EveryKind
    from kubeshard.controller.finalizers import Finalizer
    from kubeshard.controller.generator import Generator
    from kubeshard.controller.reconciler import BlockingReconciler, Reconciler, Result
    from kubeshard.controller.watch import Index, Watch, related
    from kubeshard.core import until
    from kubeshard.core.builtin import ConfigMap
    from kubeshard.core.clusters import EVERY_CLUSTER, HOME_CLUSTER, OTHER_CLUSTERS
    from kubeshard.core.conditions import Condition
    from kubeshard.core.grants import Grant
    from kubeshard.core.names import safe_name
    from kubeshard.core.namespaces import ALL
    from kubeshard.core.objects import (
        Key,
        KubeObject,
        Meta,
        ObjectMeta,
        Struct,
        field,
        metadata_only,
        replace,
    )
    from kubeshard.core.patches import MergePatch
    from kubeshard.core.readiness import is_ready
    from kubeshard.core.selectors import FieldSelector, Selector
    from kubeshard.manager.declaration import CacheSettings
    from kubeshard.manager.leader_election import LeaderElection
    from kubeshard.manager.manager import Manager
    from kubeshard.manager.pages import StatusPages
    from kubeshard.manager.program import run
    from kubeshard.manager.settings import Settings
    from kubeshard.shard.sharding import Sharding
    from kubeshard.version import __version__

__all__ = [
    "ALL",
    "EVERY_CLUSTER",
    "HOME_CLUSTER",
    "OTHER_CLUSTERS",
    "Applied",
    "BlockingReconciler",
    "CacheSettings",
    "Client",
    "Condition",
    "ConfigMap",
    "Context",
    "Controller",
    "Daemon",
    "EnsureResult",
    "EveryKind",
    "FieldSelector",
    "Finalizer",
    "Generator",
    "Grant",
    "Index",
    "Key",
    "KubeObject",
    "LeaderElection",
    "Manager",
    "MergePatch",
    "Meta",
    "ObjectMeta",
    "Ordered",
    "Plan",
    "Reconciler",
    "Result",
    "Scope",
    "Selector",
    "Settings",
    "Sharding",
    "StatusPages",
    "Struct",
    "Watch",
    "__version__",
    "ensure",
    "errors",
    "field",
    "is_ready",
    "labels_to_inherit",
    "metadata_only",
    "related",
    "replace",
    "run",
    "safe_name",
    "until",
    "wait_for",
    "watcher",
    "when",
]

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


if (
    not TYPE_CHECKING
):  # seen by a type checker it would stand for every name, and no misspelt one would be found

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
