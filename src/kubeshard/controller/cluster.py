"""One Kubernetes cluster as controllers see it.

Client, cache and events belong to a cluster, not to the process: a process that serves several clusters has
several of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeshard.cache import Cache
from kubeshard.client import Client
from kubeshard.controller.context import EventSink


@dataclass(frozen=True, slots=True)
class Cluster:
    """`client` is what reconcilers write with: fenced, where the process is a shard."""

    client: Client
    cache: Cache
    events: EventSink
    name: str = ""
