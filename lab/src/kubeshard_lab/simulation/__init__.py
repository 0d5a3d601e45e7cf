"""Whole clusters on virtual time: sharders, shards and operators as the production classes, an API server in memory,
and faults in processes, networks, clocks and the server.

Guaranteed: the same seed gives the same run, event by event, in every process. Not simulated: sockets, TLS, and
threads; a process is a task with a network and a clock of its own. Nothing that runs in production imports this
package.
"""

from kubeshard_lab.simulation.operators.snapshot import Invariant, Snapshot

__all__ = ["Invariant", "Snapshot"]
