"""The sharder: the service that distributes the objects of ControllerRings across their live shards.

Guaranteed: every object of a ring is labelled with the shard that the hash ring names, by the webhook when it
is created, and by resyncs and a watch for what the webhook missed; an object is moved away from a live shard only
after the shard released it, and from a dead one only after its Lease was taken over; no request is denied. Not
guaranteed: mutual exclusion. Shards do not rely on the sharder for that: they fence their own writes.
Start at `app`; `in_manager` is the sharder of one ring inside the ring's own controllers.
"""
