"""The pure logic of sharding: hash ring, keys, shard states, names on the wire, the ControllerRing type
and the planner.

Guaranteed: everything here is a function of its arguments; the same available shards and the same object
give the same decision in every process, and the same assignment as the reference. No I/O, no
clocks, no controllers.
"""
