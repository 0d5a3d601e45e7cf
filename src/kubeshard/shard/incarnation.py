"""Who exactly holds a Lease: one process, not one name.

Two processes may believe in the same shard name: a StatefulSet pod that was force-deleted on an unreachable
node and its replacement, two Deployments given one name, pods on the host network. Both would find "their"
Lease and both would work. So a shard writes into its Lease which process it is, as an annotation that Go
shards and sharders ignore.

Not guaranteed: that two processes which start within one another's first request notice before the second
one's first renewal.
"""

from __future__ import annotations

from dataclasses import dataclass

INCARNATION_ANNOTATION = "alpha.sharding.timebertt.dev/incarnation"


@dataclass(frozen=True, slots=True)
class Incarnation:
    """`<pod uid>/<boot id>/<random>`; the first two are empty where unknown. None of the parts contains a
    slash.
    """

    pod_uid: str
    boot_id: str
    token: str

    def __str__(self) -> str:
        return f"{self.pod_uid}/{self.boot_id}/{self.token}"

    def outlived(self, other: str) -> bool:
        """Whether the process that wrote `other` is certainly gone, because this one runs.

        True for another container of the same pod: the kubelet starts one only after it saw the former end
        (one shard per pod is assumed). Same machine is no proof.
        """
        return bool(self.pod_uid) and other.split("/")[0] == self.pod_uid
