"""The first operator as one shard of the ring `pages`: python first_operator_sharded.py NAME"""

import sys

from first_operator import pages

from kubeshard import Manager, Sharding, run

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give this shard a unique name: python first_operator_sharded.py NAME")
    # In a pod, Sharding("pages") is enough. Here several shards share one host, so each has a name and none has a port.
    sharding = Sharding("pages", name=sys.argv[1], namespace="default")
    run(Manager([pages], sharding=sharding, status_pages=None))
