"""Being the sharder: the service that spreads the objects of ControllerRings over their live shards.

Guaranteed: every object of a ring is labelled with the shard that the hash ring names, by the webhook as it
is created, and by passes and a watch on what the webhook missed; an object is taken from a live shard only
after that let go, and from a dead one only after its Lease was taken; nobody's request is denied. Not
guaranteed: exclusion, for which the sharder is not trusted: shards fence their own writes.
Start at `app`; `in_manager` is the sharder of one ring inside the ring's own controllers.
"""
