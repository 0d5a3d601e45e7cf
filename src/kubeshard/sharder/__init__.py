"""Being the sharder: the service that spreads the objects of ControllerRings over their live shards.

Guaranteed: every object of a ring is labelled with the shard that the hash ring names, by the webhook as it
is created, and by passes and a watch on what the webhook missed; an object is taken from a live shard only
after that let go, and from a dead one only after its Lease was taken; nobody's request is denied. Not
guaranteed: exclusion, for which the sharder is not trusted: shards fence their own writes.
Start at `app`.
"""

from kubeshard.sharder.app import build_sharder, connected_sharder, run_sharder
from kubeshard.sharder.config import SharderConfig, load_sharder_config

__all__ = ["SharderConfig", "build_sharder", "connected_sharder", "load_sharder_config", "run_sharder"]
