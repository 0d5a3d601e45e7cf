"""The measures that keep two processes from working on one object, and how each is switched off: a measure whose
absence no oracle notices is not known to work.

For each there is a mix of faults under which a named oracle notices that it is missing, in a few seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from kubeshard.controller import in_flight
from kubeshard.core.errors import ConfigurationError
from kubeshard.listwatch import machine
from kubeshard.shard import handover, reclaiming, shard_lease
from kubeshard.sharder import admission, dead_shards, waiting
from kubeshard.sharding import leases
from kubeshard.simulation import processes
from kubeshard.simulation.script import Sharder


class Measure(NamedTuple):
    """`faults`: those under which `oracle` notices that it is missing, with the sharder there. `off`: what is replaced
    to switch it off. `covered_by`: other measures that hide its absence, so they are switched off with it: it is a
    second line of defence. `seed`: one with which its absence is noticed soon.
    """

    name: str
    summary: str
    oracle: str
    faults: tuple[str, ...]
    off: tuple[tuple[Any, str, Any], ...]
    covered_by: tuple[str, ...] = ()
    sharder: Sharder = "service"
    seed: int = 601


async def _at_once(*_: object, **__: object) -> bool:
    return True


async def _proven(*_: object) -> Callable[[], bool]:
    return lambda: True


def _forgotten(
    book: leases.LeaseBook, key: Any, now: float, version: str = "", asked: float | None = None
) -> Any:
    record = book._records.get(key)
    return book._put(key, record, None, now) if record else None


MEASURES = (
    Measure(
        "fence",
        "a write of a shard lands only while the object is the shard's",
        "stale write",
        ("late", "scale", "replace"),
        ((shard_lease.ShardFence, "covers", lambda *_: False),),
    ),
    Measure(
        "watchdog",
        "the kernel ends a process that has not renewed its Lease in time",
        "overlap",
        ("pause",),
        (
            (processes.VirtualWatchdog, "arm", lambda *_: None),
            (processes.VirtualWatchdog, "bite", lambda *_: None),
        ),
    ),
    Measure(
        "tombstone",
        "a shard whose Lease was deleted counts as alive for as long as it may still work",
        "overlap",
        ("lease", "pause", "scale"),
        ((leases.LeaseBook, "forget", _forgotten),),
    ),
    Measure(
        "proof of death",
        "the sharder reads the Lease again before it takes objects from a shard",
        "taken alive",
        ("failover_blind",),
        ((dead_shards.DeadShardProofs, "proven", _proven),),
    ),
    Measure(
        "incarnation",
        "a process does not take over the Lease of another one that lives under its name",
        "overlap",
        ("twin", "restart"),
        ((shard_lease, "_incarnation", lambda *_: ""),),
    ),
    Measure(
        "reclaiming",
        "a shard that is restarted seals its objects against late writes of its former process",
        "taken alive",
        ("failover_late",),
        ((reclaiming, "reclaim", _at_once),),
    ),
    Measure(
        "stale guard",
        "events that are older than an object's assignment do not count",
        "not ours",
        ("second_silent", "scale"),
        ((handover.StaleGuard, "admits", lambda *_: True),),
    ),
    Measure(
        "first run",
        "the first reconcile after an assignment reads from the API server",
        "missed child",
        ("children_late", "scale"),
        ((handover.FirstRuns, "pending", lambda *_: None),),
    ),
    Measure(
        "idle before acknowledgement",
        "an object is handed over when nobody in the process works on it",
        "overlap",
        ("scale", "drain", "kill"),
        ((in_flight.InFlight, "idle", _at_once),),
    ),
    Measure(
        "children wait",
        "controlled objects move after their owner",
        "parted",
        ("scale",),
        ((waiting.PendingDrains, "unsure", lambda *_: False),),
    ),
    Measure(
        "webhook restores",
        "a shard label that a user drops is put back",
        "not restored",
        ("put_without_labels", "scale"),
        ((admission.ShardAdmission, "_must_keep", lambda *_: False),),
    ),
    Measure(
        "restore noticed",
        "history that went back is noticed, and everything is read anew",
        "not settled",
        ("restore",),
        ((machine.SharedKnowledge, "rewritten", lambda *_: None),),
    ),
)


def measures_named(names: Collection[str]) -> list[Measure]:
    """Raises ConfigurationError for names that do not exist."""
    known = {measure.name: measure for measure in MEASURES}
    if unknown := [name for name in names if name not in known]:
        raise ConfigurationError(f"there is no measure {', '.join(unknown)}; there are: {', '.join(known)}")
    return [known[name] for name in names]


@contextmanager
def switched_off(names: Collection[str]) -> Iterator[None]:
    """The measures are missing in the block. Raises ConfigurationError for names that do not exist."""
    with ExitStack() as stack:
        for measure in measures_named(names):
            for owner, attribute, replacement in measure.off:
                stack.callback(setattr, owner, attribute, vars(owner)[attribute])
                setattr(owner, attribute, replacement)
        yield
