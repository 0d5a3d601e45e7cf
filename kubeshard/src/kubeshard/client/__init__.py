"""Access to a Kubernetes API server: configuration, credentials, typed and metadata-only requests, lists,
watches, fenced writes.

Start at `client.Client`; `fence` describes what a shard's writes guarantee. Guaranteed by the package: every request
has a deadline, no write is sent twice, and every response is validated. Not included: caches (`kubeshard.cache`).
"""

from kubeshard.client.client import Client
from kubeshard.client.config import BearerToken, ClusterConfig
from kubeshard.client.discovery import Discovery, KindNotServed
from kubeshard.client.fence import Fence
from kubeshard.client.installing import install
from kubeshard.client.kubeconfig import in_cluster_config, load_config
from kubeshard.client.limiter import Limiter, TokenBucketLimiter
from kubeshard.client.listing import ListStream
from kubeshard.client.retry import RetryPolicy, retry_on_conflict
from kubeshard.client.watching import Bookmark, Changed, Failed, WatchEvent, WatchStream

__all__ = [
    "BearerToken",
    "Bookmark",
    "Changed",
    "Client",
    "ClusterConfig",
    "Discovery",
    "Failed",
    "Fence",
    "KindNotServed",
    "Limiter",
    "ListStream",
    "RetryPolicy",
    "TokenBucketLimiter",
    "WatchEvent",
    "WatchStream",
    "in_cluster_config",
    "install",
    "load_config",
    "retry_on_conflict",
]
