"""Fencing tokens, for what a reconciler does outside the cluster.

The API server refuses a write of a process that no longer owns an object; nothing else does. A call to an external API
that a paused process makes late, or that waits in a network, arrives after calls of the next owner. The receiver can
tell if each call brings a token, and it keeps the greatest one that it has seen for the object: a smaller one is late.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeshard.core.objects import KubeObject


class FencingToken(NamedTuple):
    """Tokens of one object compare as tuples do.

    Guaranteed: a token of a later owner is greater than each token of an earlier one, whether ownership is that of a
    shard or of a leader; tokens of one owner do not decrease as long as it takes them from newer states of the object.
    Not guaranteed: anything after etcd was restored from a backup, which takes versions back.
    """

    term: int
    """The version of the leader election's Lease when this process became the leader; 0 without one."""
    version: int
    """The version of the object. Each move to another shard is a write to the object."""

    def __str__(self) -> str:
        """Text whose order is that of the tokens, for headers and columns."""
        return f"{self.term:020d}-{self.version:020d}"


def fencing_token(obj: KubeObject, term: int) -> FencingToken:
    """Raises ValueError for an object that was not read from an API server with decimal versions."""
    version = obj.metadata.resource_version
    if not (version.isascii() and version.isdigit()):
        raise ValueError(
            f"{obj.KIND} {obj.key} has version {version!r}, not a decimal number: give the object as reconcile got it"
        )
    return FencingToken(term, int(version))
