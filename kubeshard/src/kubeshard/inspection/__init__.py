"""Inspects a ring: its shards, their objects, why they have them, and what would move.

Guaranteed: only `shard_drain` and `release` write; every reported decision is made by the sharder's own code from the
state in the API server; memory does not grow with the number of objects, except for one integer per object in a live
view. The package works with any sharder that follows the wire contract. Not guaranteed: that nothing changes between
two reads.
"""
