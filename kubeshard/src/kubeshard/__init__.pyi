# What type checkers and editors read: `_HOMES` of __init__.py says the same to the interpreter.
from kubeshard import errors as errors
from kubeshard.cache.scope import Scope as Scope
from kubeshard.cache.waiting import wait_for as wait_for
from kubeshard.cache.watchers import watcher as watcher
from kubeshard.client.client import Client as Client
from kubeshard.controller import when as when
from kubeshard.controller.context import Context as Context
from kubeshard.controller.controller import Controller as Controller
from kubeshard.controller.daemons import Daemon as Daemon
from kubeshard.controller.dependents import EnsureResult as EnsureResult
from kubeshard.controller.dependents import ensure as ensure
from kubeshard.controller.desired.inherited_labels import labels_to_inherit as labels_to_inherit
from kubeshard.controller.desired.order import Ordered as Ordered
from kubeshard.controller.desired.plan import Applied as Applied
from kubeshard.controller.desired.plan import Plan as Plan
from kubeshard.controller.every_kind import EveryKind as EveryKind
from kubeshard.controller.finalizers import Finalizer as Finalizer
from kubeshard.controller.generator import Generator as Generator
from kubeshard.controller.reconciler import (
    BlockingReconciler as BlockingReconciler,
)
from kubeshard.controller.reconciler import (
    Reconciler as Reconciler,
)
from kubeshard.controller.reconciler import (
    Result as Result,
)
from kubeshard.controller.watch import Index as Index
from kubeshard.controller.watch import Watch as Watch
from kubeshard.controller.watch import related as related
from kubeshard.core import until as until
from kubeshard.core.builtin import ConfigMap as ConfigMap
from kubeshard.core.clusters import (
    EVERY_CLUSTER as EVERY_CLUSTER,
)
from kubeshard.core.clusters import (
    HOME_CLUSTER as HOME_CLUSTER,
)
from kubeshard.core.clusters import (
    OTHER_CLUSTERS as OTHER_CLUSTERS,
)
from kubeshard.core.conditions import Condition as Condition
from kubeshard.core.grants import Grant as Grant
from kubeshard.core.names import safe_name as safe_name
from kubeshard.core.namespaces import ALL as ALL
from kubeshard.core.objects import (
    Key as Key,
)
from kubeshard.core.objects import (
    KubeObject as KubeObject,
)
from kubeshard.core.objects import (
    Meta as Meta,
)
from kubeshard.core.objects import (
    ObjectMeta as ObjectMeta,
)
from kubeshard.core.objects import (
    Struct as Struct,
)
from kubeshard.core.objects import (
    field as field,
)
from kubeshard.core.objects import (
    metadata_only as metadata_only,
)
from kubeshard.core.objects import (
    replace as replace,
)
from kubeshard.core.patches import MergePatch as MergePatch
from kubeshard.core.readiness import is_ready as is_ready
from kubeshard.core.selectors import FieldSelector as FieldSelector
from kubeshard.core.selectors import Selector as Selector
from kubeshard.manager.declaration import CacheSettings as CacheSettings
from kubeshard.manager.leader_election import LeaderElection as LeaderElection
from kubeshard.manager.manager import Manager as Manager
from kubeshard.manager.pages import StatusPages as StatusPages
from kubeshard.manager.program import run as run
from kubeshard.manager.settings import Settings as Settings
from kubeshard.shard.sharding import Sharding as Sharding
from kubeshard.version import __version__ as __version__

_HOMES: dict[str, tuple[str, ...]]
