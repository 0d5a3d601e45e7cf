"""The pure logic of sharding: hash ring, keys, shard states, names on the wire, the ControllerRing type, the planner,
and the machine of a ring that a sharder leads.

Guaranteed: everything here is a function of its arguments and of what it was told; the same available shards and the
same object give the same decision in every process, and the same assignment as the reference. No I/O, no tasks, no
controllers.
"""
