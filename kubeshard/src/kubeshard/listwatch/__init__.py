"""One list/watch: following the objects of a kind, without keeping them.

Guaranteed: whatever happens to the connection or the server, what is passed on converges to the server's state; every
failure is reported and followed by another attempt. Not guaranteed: intermediate states of an object.
`state_machine` decides, `reflector` drives it; the cache collects what it passes on, others use it as it comes.
"""
