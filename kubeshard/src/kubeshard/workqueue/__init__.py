"""The work queue between triggers and reconciles.

Guaranteed (`state_machine`, `queue`): keys are handed out in order, each to one worker at a time; adds are collapsed
while a key waits and never lost while it is processed. Around that, each in its own module: priorities and round robin
over tenants (`order`), delays and debouncing (`delays`), retry limits (`limits`), reasons (`reasons`), and snapshots
for debugging (`views`). A custom `Order` can decide which ready key of a priority is next.
See docs/work-queue.md.

Not guaranteed: order between keys after delays, persistence, thread safety.
"""

from kubeshard.workqueue.delays import Debounce
from kubeshard.workqueue.limits import FastSlow, ItemExponential, Limiter, MaxOf, MaxWait, OverallRate
from kubeshard.workqueue.order import LOW, NORMAL, Order, RoundRobin
from kubeshard.workqueue.queue import QueueMetrics, ShutDown, WorkQueue
from kubeshard.workqueue.reasons import Cause, Reason
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
