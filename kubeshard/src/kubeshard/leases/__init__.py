"""Holding a Lease: the right to act, until a deadline that is counted from the last successful renewal.

| module | |
|---|---|
| `timing` | durations and margins |
| `claim` | who holds a Lease, when it may be taken over, and what its holder writes there |
| `state_machine` | acquiring, renewing and releasing a Lease: time and responses in, requests out |
| `renewer` | drives the state machine, in the workers' event loop or in a separate thread |
| `held_lease` | the right to act, as the workers see it |

Leader election (`kubeshard.manager.leader_election`) and a shard's Lease (`kubeshard.shard.shard_lease`) are two uses.

Guaranteed: of the processes that follow these rules on one Lease, never two are within their deadlines, whatever their
clocks show, as long as the clock rates differ by less than lease duration and renew deadline do; a process that cannot
renew stops before another may start; a Lease is released only after all work has verifiably stopped. If somebody
deletes a Lease, processes that had seen it treat it as still held: they wait as if it had changed at that moment.

Not guaranteed:

- that a write which was sent in time does not take effect late. To exclude that, use a precondition that the API
  server checks (`kubeshard.client.fence`);
- that deleting a Lease or restoring etcd causes no second holder for one deadline: a process that never saw the
  deleted record creates the Lease at once, unless the holder recreates it first, at its next renewal; and a restored
  record may have no holder.
"""
