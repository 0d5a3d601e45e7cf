"""Controllers: the reconciler's contract, triggers with predicates and mapping, and the workers that run it.

Guaranteed: an object of a controller is reconciled by one worker at a time, no trigger is lost, and a failing or
hanging reconcile affects neither other objects nor the process. Not guaranteed: exclusion between processes,
which is up to whoever starts the workers (`kubeshard.manager`). A tour in reading order:
`controller`, `watch`, `reconciler`, `context`, `runner`, `workers`.
"""

from kubeshard.controller import when
from kubeshard.controller.context import Context, RemoteCluster
from kubeshard.controller.controller import Controller
from kubeshard.controller.daemons import Daemon
from kubeshard.controller.desired.applyset import AnothersApplySet
from kubeshard.controller.desired.order import Ordered
from kubeshard.controller.desired.plan import Applied, ApplyFailed, ImmutableFields, NotAdopted, Plan, Update
from kubeshard.controller.every_kind import EveryKind
from kubeshard.controller.fencing import FencingToken
from kubeshard.controller.finalizers import Finalizer
from kubeshard.controller.generator import Generator
from kubeshard.controller.mapping import Reader
from kubeshard.controller.reconciler import (
    BlockingReconciler,
    ReconcileFn,
    Reconciler,
    ReconcilerWrapper,
    Request,
    Result,
)
from kubeshard.controller.sources import ChannelSource, Enqueue, Source, TimerSource
from kubeshard.controller.status import NoStatusSubresource
from kubeshard.controller.timers import poll, timer
from kubeshard.controller.tracing import traced
from kubeshard.controller.watch import Index, Watch, related

__all__ = [
    "AnothersApplySet",
    "Applied",
    "ApplyFailed",
    "BlockingReconciler",
    "ChannelSource",
    "Context",
    "Controller",
    "Daemon",
    "Enqueue",
    "EveryKind",
    "FencingToken",
    "Finalizer",
    "Generator",
    "ImmutableFields",
    "Index",
    "NoStatusSubresource",
    "NotAdopted",
    "Ordered",
    "Plan",
    "Reader",
    "ReconcileFn",
    "Reconciler",
    "ReconcilerWrapper",
    "RemoteCluster",
    "Request",
    "Result",
    "Source",
    "TimerSource",
    "Update",
    "Watch",
    "poll",
    "related",
    "timer",
    "traced",
    "when",
]
