"""The manager of a process: start and stop order, the right to act and its loss, signals, health and metrics.

    run(Manager(controllers=[controller], leader_election=LeaderElection(name="websites", namespace="default")))

Guaranteed: see `lifecycle`. Sharding itself is not here; it is passed in as a `Membership`
(`kubeshard.shard.Sharding`).
"""

from kubeshard.manager.leader_election import LeaderElection
from kubeshard.manager.manager import Manager
from kubeshard.manager.membership import RightLost
from kubeshard.manager.program import run
from kubeshard.manager.runnable import Runnable
from kubeshard.manager.servers import ClientServer, Server
from kubeshard.manager.settings import Settings

__all__ = [
    "ClientServer",
    "LeaderElection",
    "Manager",
    "RightLost",
    "Runnable",
    "Server",
    "Settings",
    "run",
]
