"""The queue between what happened and what is done about it.

Guaranteed (`core`, `queue`): keys are handed out in order, each to one worker at a time; adds are collapsed
while a key waits and never lost while it is processed. Around that, each in its own module: delays that only
move earlier (`delays`), retry limits (`limits`), reasons for logs (`reasons`), observations for metrics
(`metrics`).

Not guaranteed: order between keys after delays, persistence, use from several threads. Controllers depend on
the protocol `Queue` only (`protocols`), so that a queue with priorities can take this one's place.
"""

from kubeshard.workqueue.limits import FastSlow, ItemExponential, Limiter, MaxOf, MaxWait, OverallRate
from kubeshard.workqueue.metrics import QueueMetrics
from kubeshard.workqueue.protocols import Queue
from kubeshard.workqueue.queue import ShutDown, WorkQueue

__all__ = [
    "FastSlow",
    "ItemExponential",
    "Limiter",
    "MaxOf",
    "MaxWait",
    "OverallRate",
    "Queue",
    "QueueMetrics",
    "ShutDown",
    "WorkQueue",
]
