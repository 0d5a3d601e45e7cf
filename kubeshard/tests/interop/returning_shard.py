"""A shard in its own process that reacquires its Lease in the way that the Go sharder needs: the checksum controller
with short Leases.

Arguments: ring, shard name, namespace, seconds of the Lease.
"""

from __future__ import annotations

import sys

from kubeshard import CacheSettings
from kubeshard.cache import Scope
from kubeshard.manager import Manager, run
from kubeshard.shard import LeaseTerms, Sharding, scaled
from kubeshard.shard.shard_lease import Takeover
from kubeshard_lab.examples.checksum.operator import secret_checksums


def main() -> None:
    ring, name, namespace, seconds = sys.argv[1:]
    run(
        Manager(
            [secret_checksums()],
            cache=CacheSettings(default_scope=Scope(frozenset({namespace}))),
            sharding=Sharding(
                ring, name, namespace, lease=LeaseTerms(scaled(float(seconds)), Takeover.AFTER_RECORD)
            ),
            status_pages=None,
        )
    )


if __name__ == "__main__":
    main()
