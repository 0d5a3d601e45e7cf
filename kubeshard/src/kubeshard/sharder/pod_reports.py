"""The kubelet's report that the containers of a shard's pod have ended, as a proof of the shard's death.

A shard that crashed is otherwise given up after twice the duration of its Lease. A kubelet says within a second that a
container has ended. Pods are read one at a time, when a shard has missed a renewal: healthy shards cost nothing.

Guaranteed: a report counts only if it is about the process that holds the Lease. That process says in the Lease which
pod it is in, and when it began. All containers of this pod have to have ended since then, by the clock of one node, and
none may run again: a restarted shard takes its Lease itself. That a pod was deleted, or has the phase `Failed`, says
nothing: others than the kubelet write that, about nodes that nobody can reach. Nor does `ContainerStatusUnknown`, which
a kubelet writes that has lost track of a container.

Not covered: a node whose clock is set back between the end of a container and the start of the next, while its kubelet
does not report and the new process does not renew its Lease.

RBAC: get on pods in the shards' namespaces. The right is optional: without it nothing is different.
"""

from __future__ import annotations

import asyncio

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ApiError, Forbidden
from kubeshard.core.partial_kinds import ContainerStatus, Pod
from kubeshard.core.times import parse_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharding.names import INCARNATION_ANNOTATION

PATIENCE = 2.0
"""Seconds after which a pod that cannot be read is given up, until it is asked for again."""
ASKED_AGAIN = 600.0
"""Seconds until pods are read again in a namespace where that is forbidden."""
UNKNOWN = "ContainerStatusUnknown"

_log = get_logger("kubeshard.sharder")


class PodReports:
    """Asks for the pods of shards. A shard's pod has the name of its Lease."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forbidden: dict[str, float] = {}
        """Namespaces in which pods may not be read, and until when that is assumed."""

    async def certify(self, client: Client, lease: Lease) -> bool:
        """Whether the process that holds the Lease has ended, according to the kubelet. Raises nothing."""
        meta, now = lease.metadata, self._clock.monotonic()
        incarnation = meta.annotation(INCARNATION_ANNOTATION)
        if began(incarnation) is None or now < self._forbidden.get(meta.namespace, now):
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                pod = await client.get(Pod, meta.name, meta.namespace)
        except Forbidden:
            _log.debug(
                "Pods may not be read: deaths of shards are noticed by Leases only", namespace=meta.namespace
            )
            self._forbidden[meta.namespace] = now + ASKED_AGAIN
            return False
        except (ApiError, TimeoutError) as error:
            _log.debug("The pod of a shard could not be read", pod=str(lease.key), error=error)
            return False
        return has_died(pod, incarnation)


def began(incarnation: str) -> float | None:
    """When the process began, in seconds since the epoch and rounded up; None for one that is in no pod, or of an
    implementation that does not say so. For the form see `kubeshard.shard.identity.Incarnation`.
    """
    pod_uid, _, _, _, seconds = (*incarnation.split("/"), "", "", "", "", "")[:5]
    return float(seconds) if pod_uid and seconds.isdecimal() else None


def has_died(pod: Pod, incarnation: str) -> bool:
    """Whether the pod's status proves that this process has ended."""
    since = began(incarnation)
    if since is None or pod.metadata.uid != incarnation.partition("/")[0]:
        return False
    containers = pod.status.container_statuses
    if not containers or len(containers) != len(pod.spec.containers):
        return False
    if any(each.state.running is not None for each in pod.status.init_container_statuses):
        return False
    return all(_ended_since(each, since) for each in containers)


def _ended_since(container: ContainerStatus, since: float) -> bool:
    ended = container.state.terminated or container.last_state.terminated
    if container.state.running is not None or ended is None or ended.reason == UNKNOWN:
        return False
    finished = parse_time(ended.finished_at)
    return finished is not None and finished >= since
