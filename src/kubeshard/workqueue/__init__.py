"""The queue between what happened and what is done about it.

Guaranteed (`core`, `queue`): keys are handed out in order, each to one worker at a time; adds are collapsed
while a key waits and never lost while it is processed. Around that, each in its own module: delays that only
move earlier (`delays`), retry limits (`limits`), reasons for logs (`reasons`), observations for metrics
(`metrics`). Which ready key is next may be
said by an `Order` of one's own, with priorities or fairness.

Not guaranteed: order between keys after delays, persistence, use from several threads.
"""

from kubeshard.workqueue.core import Order
from kubeshard.workqueue.limits import FastSlow, ItemExponential, Limiter, MaxOf, MaxWait, OverallRate
from kubeshard.workqueue.metrics import QueueMetrics
from kubeshard.workqueue.queue import ShutDown, WorkQueue

__all__ = [
    "FastSlow",
    "ItemExponential",
    "Limiter",
    "MaxOf",
    "MaxWait",
    "Order",
    "OverallRate",
    "QueueMetrics",
    "ShutDown",
    "WorkQueue",
]
