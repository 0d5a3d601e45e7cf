"""Holding a Lease: the right to act, until a deadline that is counted from the last renewal that succeeded.

| module | |
|---|---|
| `timing` | the numbers |
| `claim` | whose a Lease is, when somebody else's may be taken, and what its holder writes there |
| `machine` | the life of a Lease as a state machine: time and answers in, requests out |
| `keeper` | drives the machine, in the loop of those who work or in a thread of its own |
| `tenure` | the right to act, as those who work see it |

Leader election (`kubeshard.manager.leader_election`) and a shard's Lease (`kubeshard.shard.shard_lease`) are two uses.

Guaranteed: of those who follow these rules on one Lease, never two are within their deadlines, whatever their clocks
show, as long as these run at rates that differ by less than lease duration and renew deadline do; whoever cannot renew
stops before another may begin; a Lease is given back only after all work has been proven stopped. A Lease that somebody
deletes is still its holder's to all who had seen it: they wait as if it had changed at that moment.

Not guaranteed: that a write which was sent in time does not take effect late. What must exclude that needs a
precondition that the API server checks (`kubeshard.client.fence`). That who deletes a Lease, or restores etcd, makes no
second holder for one deadline: a process that never saw the deleted record creates the Lease at once, unless the holder
does so first, at its next renewal; and a restored record may name nobody.
"""

from kubeshard.tenure.claim import Claim, Patience
from kubeshard.tenure.keeper import (
    RENEWAL_FAILURES,
    LeaseKeeper,
    NoTenureMetrics,
    RenewalFailure,
    TenureMetrics,
)
from kubeshard.tenure.machine import Machine
from kubeshard.tenure.tenure import Gate, Tenure
from kubeshard.tenure.timing import Timing

__all__ = [
    "RENEWAL_FAILURES",
    "Claim",
    "Gate",
    "LeaseKeeper",
    "Machine",
    "NoTenureMetrics",
    "Patience",
    "RenewalFailure",
    "Tenure",
    "TenureMetrics",
    "Timing",
]
