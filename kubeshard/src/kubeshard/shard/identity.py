"""A shard's identity: one string that is Lease name, holder and label value at once; and which process acts under that
name.

Guaranteed: a name that could not be all three, or a ring that could not be a label key, is refused before
anything is written, with a helpful message.

Two processes may use the same shard name: a StatefulSet pod that was force-deleted on an unreachable node and its
replacement, two Deployments with one name, pods on the host network. Both would find "their" Lease and both would
work. So a shard records its process in the Lease, as an annotation that Go shards and sharders ignore. How long it
waits for a Lease that names another process is in `shard_lease.takeover_delay`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.names import LONGEST_NAME, is_dns_label, is_dns_subdomain, is_label_value, safe_name
from kubeshard.runtime.world import Host, World
from kubeshard.sharding.names import MAX_RING_NAME, drain_label, shard_label


@dataclass(frozen=True, slots=True)
class Incarnation:
    """`<pod uid>/<boot id>/<random>/<process>/<began>`: all but the third are empty if unknown, and slashes at the end
    are left out then. No part contains a slash.
    """

    pod_uid: str
    boot_id: str
    token: str
    process: str = ""
    began: int = 0
    """When the process began or later: seconds since the epoch, by its own clock. The sharder compares it with what the
    kubelet says about the containers of the pod.
    """

    def __str__(self) -> str:
        of_host = f"{self.process}/{self.began or ''}".rstrip("/")
        return f"{self.pod_uid}/{self.boot_id}/{self.token}" + (f"/{of_host}" if of_host else "")

    def outlived(self, other: str) -> bool:
        """Whether the process that wrote `other` must be gone, because this one runs.

        True for another container of the same pod: the kubelet starts one only after the previous one has ended, and
        a supervisor a process only after the one with its number (it is assumed that no two processes of a pod use
        one name). The same machine is not a proof. What it sent may still take effect.
        """
        return bool(self.pod_uid) and other.split("/")[0] == self.pod_uid

    def neighbour(self, other: str) -> str:
        """The process that wrote `other`, if it is one of this machine since that booted; "" if not, or if unknown."""
        _, boot, _, process = (*other.split("/"), "", "", "", "")[:4]
        return process if self.boot_id and boot == self.boot_id else ""


@dataclass(frozen=True, slots=True)
class ShardIdentity:
    """The Lease, and the process that acts under its name."""

    ring: str
    name: str
    namespace: str
    incarnation: Incarnation

    @property
    def label(self) -> str:
        """Key of the label that assigns an object to a shard; our objects have `name` as its value."""
        return shard_label(self.ring)

    @property
    def drain(self) -> str:
        """Key of the label that drains an object."""
        return drain_label(self.ring)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def identify(
    ring: str,
    name: str | None = None,
    namespace: str | None = None,
    *,
    world: World,
    outside: str = "",
    number: str = "",
    pod_name_required: bool = False,
) -> ShardIdentity:
    """The identity of this process.

    `name` defaults to the pod's name, outside a pod to the host's; `namespace` to the pod's,
    outside a pod to `outside`, as in `client.namespace`. `number`: what distinguishes the processes of a pod that are
    shards; the name ends with it.
    `pod_name_required`: the ring's admission policies compare the shard label with the pod's name, so
    another name is refused. Raises ConfigurationError.
    """
    host = world.host
    pod = host.pod()
    check_ring_name(ring)
    name = "-".join(filter(None, (name, number))) if name else _default_name(host, number)
    check_shard_name(name)
    if pod_name_required and (pod is None or pod.name != name):
        raise ConfigurationError(
            f"shard name {name!r} is not the name of this pod ({pod.name if pod else 'none found'}): "
            "the ring's admission policies would refuse every write of this shard"
        )
    namespace = namespace or host.pod_namespace() or outside
    if not namespace:
        raise ConfigurationError(
            "outside a pod the namespace of the shard's Lease is unknown: set Sharding(..., namespace=...)"
        )
    if not is_dns_label(namespace):
        raise ConfigurationError(f"invalid shard lease namespace {namespace!r}")
    began = math.ceil(world.clock.wall()) if pod else 0
    incarnation = Incarnation(
        pod.uid if pod else "", host.boot_id(), world.rng.token(), host.process(), began
    )
    return ShardIdentity(ring, name, namespace, incarnation)


def check_ring_name(ring: str) -> None:
    """Raises ConfigurationError unless the name is valid for a ControllerRing."""
    if not ring:
        raise ConfigurationError("the name of the ControllerRing is required")
    if not is_dns_subdomain(ring) or len(ring) > MAX_RING_NAME:
        raise ConfigurationError(
            f"invalid ControllerRing name {ring!r}: lower case letters, digits, '-' and '.', "
            f"at most {MAX_RING_NAME} characters"
        )


def check_shard_name(name: str) -> None:
    """Raises ConfigurationError unless the name is valid as a Lease name and as a label value."""
    if not is_dns_subdomain(name) or not is_label_value(name):
        raise ConfigurationError(
            f"invalid shard name {name!r}: it is the name of a Lease and the value of a label, so lower case "
            "letters, digits, '-' and '.', at most 63 characters; pass another name, for example the pod's"
        )


def _default_name(host: Host, number: str) -> str:
    """The pod's name if known: on the host network, the host's name is the node's, which several pods share. Made valid
    as the value of a label: a pod may have a longer name, and a host one with capitals.
    """
    pod = host.pod()
    return safe_name(host.name() if pod is None else pod.name, number, limit=LONGEST_NAME, dots=True)
