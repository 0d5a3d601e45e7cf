"""The queue between what happened and what is done about it.

Guaranteed (`core`, `queue`): keys are handed out in order, each to one worker at a time; adds are collapsed
while a key waits and never lost while it is processed. Around that, each in its own module: priorities (`levels`),
turns for tenants (`tenants`), delays that only move earlier (`delays`), bursts that become one run (`debounce`), retry
limits (`limits`), why a key is there (`reasons`), observations for metrics (`metrics`), a snapshot for people
(`views`). Which ready key of a priority is next may be said by an `Order` of one's own. docs/work-queue.md has it on
one page.

Not guaranteed: order between keys after delays, persistence, use from several threads.
"""

from kubeshard.workqueue.debounce import Debounce
from kubeshard.workqueue.levels import LOW, NORMAL, Order
from kubeshard.workqueue.limits import FastSlow, ItemExponential, Limiter, MaxOf, MaxWait, OverallRate
from kubeshard.workqueue.metrics import QueueMetrics
from kubeshard.workqueue.queue import ShutDown, WorkQueue
from kubeshard.workqueue.reasons import Cause, Reason
from kubeshard.workqueue.tenants import RoundRobin
from kubeshard.workqueue.views import DelayedKey, QueueView, WaitingKey

__all__ = [
    "LOW",
    "NORMAL",
    "Cause",
    "Debounce",
    "DelayedKey",
    "FastSlow",
    "ItemExponential",
    "Limiter",
    "MaxOf",
    "MaxWait",
    "Order",
    "OverallRate",
    "QueueMetrics",
    "QueueView",
    "Reason",
    "RoundRobin",
    "ShutDown",
    "WaitingKey",
    "WorkQueue",
]
