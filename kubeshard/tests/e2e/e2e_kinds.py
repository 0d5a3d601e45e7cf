"""Kinds of the end-to-end tests: work that waits for a flag, and a journal of which process did it when."""

from __future__ import annotations

from kubeshard.core import KubeObject
from kubeshard.core.objects import Struct, field
from kubeshard.sharding.api import RingGroupResource, RingResource

GROUP = "e2e.kubeshard.test"


class WorkSpec(Struct):
    hold: bool = False
    """A running reconcile does not return while this is true."""
    note: str = ""


class Chore(KubeObject, group=GROUP, version="v1"):
    spec: WorkSpec = field(default_factory=WorkSpec)


class Realm(KubeObject, group=GROUP, version="v1", namespaced=False):
    """The cluster-scoped counterpart."""

    spec: WorkSpec = field(default_factory=WorkSpec)


class EntrySpec(Struct):
    work: str = ""
    shard: str = ""
    what: str = ""
    """`began` or `ended`."""


class Entry(KubeObject, group=GROUP, version="v1", plural="entries"):
    """A journal entry about a reconcile. It belongs to no ring."""

    spec: EntrySpec = field(default_factory=EntrySpec)


CHORES = RingResource(
    group=GROUP,
    resource="chores",
    controlled_resources=(RingGroupResource(group="", resource="configmaps"),),
)
REALMS = RingResource(group=GROUP, resource="realms")
