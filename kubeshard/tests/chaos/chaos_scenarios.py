"""What is done in each scenario, and for how long an object may then be without a living shard. Data only.

A step is what to do, to whom, and for how long. The `victim` is a shard drawn by the seed, the `leader` the process
that is the sharder at first, the `heir` the next one, the `follower` the victim or, if that is the sharder, another
shard; for the others see `chaos_run`. After the steps everything that was broken is mended, what has ended is started
again, and the ring has to settle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BY_LABELS = ("service", "in-manager")
BY_RANGES = ("ranges", "namespaces")
ALL = (*BY_LABELS, *BY_RANGES)
ELECTED = ("in-manager", *BY_RANGES)
"""Where shards are the sharders."""


@dataclass(frozen=True)
class Step:
    do: str
    whom: str = ""
    seconds: float = 0.0
    leases: float = 0.0
    """Added to the seconds, in durations of a Lease."""
    faults: Mapping[str, Any] = field(default_factory=dict)

    def lasts(self, lease: float) -> float:
        return self.seconds + self.leases * lease


@dataclass(frozen=True, order=True)
class Setup:
    """What is special about the ring."""

    pods: bool = False
    """Each shard has a Pod, whose status says at once that its containers have ended."""
    strict: bool = False
    """It asks for strict hand-over."""
    unwatched: bool = False
    """Reconciles take seconds, and no watchdog ends a shard that is stopped: as on a machine that stands still as a
    whole, whose clocks stop, too.
    """
    without: str = ""
    """A measure of `tools/measures.py` that the shards lack."""


@dataclass(frozen=True)
class Scenario:
    """`leases` and `seconds` are the bound: durations of a Lease, and seconds beside them. What dies by itself is
    started again under its name; with `restarts` also what the steps have killed. `shows`: what may be found, because
    the measure is missing that prevents it; the first of these has to be.
    """

    name: str
    what: str
    steps: tuple[Step, ...]
    leases: float
    seconds: float
    restarts: bool = False
    modes: tuple[str, ...] = ALL
    setup: Setup = Setup()
    shows: tuple[str, ...] = ()
    unheard: float = 0.0
    """Seconds for which a shard may hear nothing of what it has, and so do nothing with it."""

    def bound(self, lease: float) -> float:
        return self.leases * lease + self.seconds

    @property
    def late(self) -> bool:
        """Whether what a shard has sent may arrive when others have its objects."""
        return self.setup.unwatched or any("hold_requests" in step.faults for step in self.steps)


DETECT = 2.0
"""A silent shard is given up after two durations of its Lease."""
SILENT = 75.0
"""Seconds without a word after which a watch is opened anew."""
SLACK = 10.0
"""For starting a process, and moving objects, on a busy machine."""
_OWNED = Step("until owned", leases=DETECT, seconds=30)
_JOIN = (Step("terminate", "follower"), _OWNED, Step("start", "follower"), Step("until draining", seconds=60))
"""A shard comes back, and others are asked for its objects."""
_ASKED = Step("ask", "victim")
"""It has to be told who is waited for, and nothing of it may have moved."""


_FENCES = {"fence": BY_LABELS, "fence by versions": BY_RANGES}
_WAITS = {"buckets idle before acknowledgement": BY_RANGES}
"""By labels, no move was seen to come while a run was under way, whether that is waited for or not."""


def _pause(seconds: float, leases: float = 0.0) -> Step:
    return Step("wait", seconds=seconds, leases=leases)


_LATE = (
    Step("until busy", "victim"),
    Step("fault", "victim", faults={"hold_requests": True}),
    Step("until effect", seconds=30),
    _pause(3),
    Step("kill", "victim"),
    _OWNED,
    _pause(8),
    Step("heal", "victim"),
    _pause(2),
)
"""What a shard at work sent before it was killed arrives when others have its objects."""


def _cut_off(name: str, what: str, faults: Mapping[str, Any], leases: float) -> Scenario:
    steps = (Step("fault", "victim", faults=faults), _pause(0, leases), Step("heal", "victim"), _pause(2))
    return Scenario(name, what, steps, DETECT, SLACK, restarts=True)


def _confirmed(name: str, what: str, by: Step) -> Scenario:
    """A shard is killed; its objects wait until a step tells that it has ended."""
    steps = (Step("kill", "victim"), _pause(0, 2 * DETECT), _ASKED, by, _OWNED)
    return Scenario(name, what, steps, 3 * DETECT, 60, modes=BY_LABELS, setup=Setup(strict=True))


def _stood_still(
    name: str, what: str, *then: Step, strict: bool = True, shows: tuple[str, ...] = ()
) -> Scenario:
    """The machine of a shard at work stands still until others may have begun with its objects."""
    steps = (Step("until busy", "victim"), Step("stop", "victim"), _pause(0, 2 * DETECT), *then)
    setup, modes = Setup(strict=strict, unwatched=True), BY_LABELS if strict else ALL
    return Scenario(name, what, steps, 3 * DETECT, 60, modes=modes, setup=setup, shows=shows)


def _without(measure: str, modes: tuple[str, ...], steps: tuple[Step, ...], *shows: str) -> Scenario:
    """A measure is missing, and who judges notices that."""
    name, setup = f"without-{measure.replace(' ', '-')}", Setup(unwatched=True, without=measure)
    what = f"shards lack the measure: {measure}"
    return Scenario(name, what, steps, 3 * DETECT, 60, modes=modes, setup=setup, shows=shows)


SCENARIOS = (
    Scenario("C1", "SIGKILL of a shard", (Step("kill", "victim"), _OWNED), DETECT, SLACK),
    Scenario(
        "C1-pods",
        "SIGKILL of a shard whose pod is reported ended",
        (Step("until busy", "follower"), Step("kill", "follower"), Step("report", "follower"), _OWNED),
        0,
        5,
        setup=Setup(pods=True),
    ),
    Scenario(
        "C1-restart",
        "SIGKILL of a shard that is started again under its name",
        (Step("kill", "victim"), Step("start", "victim"), _pause(0, 1)),
        DETECT,
        SLACK,
    ),
    Scenario(
        "C2-short",
        "a shard is stopped for half a renewal deadline",
        (Step("stop", "victim"), _pause(0, 1 / 3), Step("continue", "victim"), _pause(2)),
        1,
        SLACK,
    ),
    Scenario(
        "C2-long",
        "a shard is stopped for three durations of its Lease",
        (Step("stop", "victim"), _pause(0, 3), Step("continue", "victim"), _pause(2)),
        DETECT,
        SLACK,
    ),
    Scenario("C3", "SIGTERM of a busy shard", (Step("terminate", "victim"), _OWNED), 1, SLACK),
    Scenario(
        "C1-turn",
        "SIGKILL of each shard in turn, which is started again when its objects are others'",
        tuple(
            step
            for whom in ("first", "second", "third")
            for step in (Step("kill", whom), _OWNED, Step("start", whom), _pause(0, 1))
        ),
        DETECT,
        SLACK,
    ),
    Scenario("C4", "rolling restart of all shards", (Step("roll", "shards"), _OWNED), DETECT, SLACK),
    Scenario(
        "C4-zero",
        "all shards are stopped, and started again",
        (Step("terminate", "shards"), _pause(3), Step("start", "shards"), _OWNED),
        DETECT,
        SLACK,
    ),
    Scenario(
        "C5-kill",
        "SIGKILL of the leading sharder, then of a shard",
        (Step("kill", "leader"), Step("kill", "victim"), _OWNED),
        2 * DETECT,
        SLACK,
        modes=("service",),
    ),
    Scenario(
        "C5-stop",
        "SIGSTOP of the leading sharder, and SIGKILL of a shard",
        (Step("stop", "leader"), Step("kill", "follower"), _OWNED, Step("continue", "leader"), _pause(3)),
        2 * DETECT,
        SLACK,
    ),
    Scenario(
        "C5-midway",
        "the sharder is stopped for a third of a Lease while it shares out for a shard that joins",
        (*_JOIN, Step("stop", "leader"), _pause(0, 1 / 3), Step("continue", "leader"), _OWNED),
        1,
        SLACK,
    ),
    Scenario(
        "C5-heir",
        "SIGKILL of the shard that is the sharder, and of the next one",
        (Step("kill", "leader"), Step("kill", "heir", leases=DETECT, seconds=30), _OWNED),
        3 * DETECT,
        SLACK,
        modes=ELECTED,
    ),
    Scenario(
        "C5-both",
        "both sharders are killed, and started again after a Lease",
        (Step("kill", "sharders"), _pause(0, 1), Step("start", "sharders"), _OWNED),
        DETECT,
        SLACK + 5,
        modes=("service",),
    ),
    Scenario(
        "C5-leader",
        "SIGKILL of the shard that is the sharder",
        (Step("kill", "leader"), _OWNED),
        2 * DETECT,
        SLACK,
        modes=ELECTED,
    ),
    Scenario(
        "C6-hole",
        "the webhook does not answer",
        (Step("fault", "webhook", faults={"hold_requests": True}), _pause(12), Step("heal", "webhook")),
        0,
        8,
        modes=("service",),
    ),
    Scenario(
        "C6-reset",
        "connections to the webhook are reset",
        (
            Step("fault", "webhook", faults={"refuse": True}),
            Step("reset", "webhook"),
            _pause(8),
            Step("heal", "webhook"),
        ),
        0,
        8,
        modes=("service",),
    ),
    Scenario(
        "C6-slow",
        "the webhook answers after 4.9 s",
        (Step("fault", "webhook", faults={"delay": 2.45}), _pause(12), Step("heal", "webhook")),
        0,
        8,
        modes=("service",),
    ),
    Scenario(
        "C7-one",
        "one of two API servers is killed, and started again",
        (Step("kill", "api-2"), _pause(6), Step("start", "api-2"), _pause(2)),
        DETECT,
        SLACK,
        restarts=True,
    ),
    Scenario(
        "C7-both",
        "both API servers are killed, and started again after two durations of a Lease",
        (Step("kill", "apis"), _pause(0, 2), Step("start", "apis"), _pause(2)),
        3 * DETECT,
        60,
        restarts=True,
    ),
    Scenario(
        "C7-compact",
        "one API server is started again after etcd was compacted, and all shards are moved to it",
        (
            Step("kill", "api-2"),
            Step("compact"),
            Step("start", "api-2"),
            Step("until serving", "api-2"),
            Step("move", "shards"),
            Step("terminate", "follower"),
            _OWNED,
            Step("start", "follower"),
            _pause(5),
            Step("move back", "shards"),
        ),
        DETECT,
        SLACK,
        restarts=True,
    ),
    Scenario(
        "C8",
        "etcd is stopped for two durations of a Lease",
        (Step("stop", "etcd"), _pause(0, 2), Step("continue", "etcd"), _pause(2)),
        3 * DETECT,
        60,
        restarts=True,
    ),
    _cut_off(
        "C9-short",
        "a shard is cut off for a third of a Lease; what it sent arrives afterwards",
        {"hold_requests": True, "hold_answers": True},
        1 / 3,
    ),
    _cut_off(
        "C9-long",
        "a shard is cut off for three durations of its Lease; what it sent arrives afterwards",
        {"hold_requests": True, "hold_answers": True},
        3,
    ),
    _cut_off("C9-requests", "what a shard sends does not arrive until later", {"hold_requests": True}, 2.5),
    _cut_off("C9-answers", "a shard gets no answers", {"hold_answers": True}, 2.5),
    Scenario(
        "C9-late",
        "a shard at work is cut off and killed; what it sent arrives when others have its objects",
        _LATE,
        DETECT,
        SLACK,
    ),
    Scenario(
        "C9-half-open",
        "all connections of a shard are half open",
        (Step("half-open", "victim"), _pause(0, 1)),
        DETECT,
        SLACK,
        restarts=True,
        unheard=SILENT,
    ),
    Scenario(
        "C9-leader",
        "the sharder is cut off for three durations of its Lease while it shares out; what it sent arrives afterwards",
        (
            *_JOIN,
            Step("fault", "leader", faults={"hold_requests": True, "hold_answers": True}),
            _pause(0, 3),
            Step("heal", "leader"),
            _pause(2),
        ),
        2 * DETECT,
        SLACK,
        restarts=True,
    ),
    _cut_off("C9-cut", "each connection of a shard is cut after 4 kB of answers", {"cut_after": 4096}, 1),
    Scenario(
        "C10",
        "an API server hears nothing from etcd, and all shards are moved to it",
        (
            Step("fault", "etcd-2", faults={"hold_answers": True}),
            Step("move", "shards"),
            _pause(0, 1 / 3),
            Step("move back", "shards"),
            Step("heal", "etcd-2"),
            _pause(3),
        ),
        DETECT,
        SLACK + 10,
        restarts=True,
    ),
    Scenario(
        "C10-behind",
        "an API server hears everything from etcd half a second late, and shards on both are restarted",
        (
            Step("fault", "etcd-2", faults={"delay": 0.25}),
            Step("move", "follower"),
            Step("roll", "shards"),
            _OWNED,
            Step("move back", "follower"),
            Step("heal", "etcd-2"),
        ),
        DETECT,
        SLACK,
        restarts=True,
    ),
    Scenario(
        "C11-lease",
        "a user deletes the Lease of a shard",
        (Step("delete lease", "victim"), _pause(5)),
        DETECT,
        SLACK,
        restarts=True,
    ),
    Scenario(
        "C11-all",
        "a user deletes all Leases of the ring, and the sharder's",
        (Step("delete lease", "shards"), Step("delete lease", "sharder"), _pause(8)),
        DETECT,
        SLACK,
        restarts=True,
    ),
    Scenario(
        "C11-ghost",
        "a user creates the Lease of a shard that does not exist, renewed in 2099",
        (Step("create ghost"), _pause(4), Step("delete ghost"), _OWNED),
        DETECT,
        SLACK,
    ),
    Scenario(
        "C11-assignment",
        "a user deletes the assignment of the ring, and a shard is killed",
        (Step("delete assignment"), Step("kill", "victim"), _OWNED),
        2 * DETECT,
        SLACK,
        modes=BY_RANGES,
    ),
    Scenario(
        "C12",
        "a shard's wall clock is an hour off",
        (
            Step("terminate", "victim"),
            Step("start with wrong clock", "victim", seconds=3600),
            _pause(0, 2),
            Step("terminate", "victim"),
        ),
        1,
        SLACK,
    ),
    Scenario(
        "C13",
        "the certificate and the authorities of the webhook are deleted, and made anew",
        (Step("delete certificate"), _pause(70), Step("until assigned at birth", seconds=30)),
        0,
        8,
        modes=("service",),
    ),
    Scenario(
        "C14",
        "both sharders get a tenth of a processor",
        (Step("throttle", "sharders", seconds=12), Step("until assigned at birth", seconds=30)),
        0,
        20,
        modes=("service",),
    ),
    Scenario(
        "C15-delete",
        "the ring is deleted with its labels while users work, and created again",
        (Step("delete ring", seconds=60), Step("create ring"), _OWNED),
        0,
        60,
        modes=("service",),
    ),
    Scenario(
        "C15-selector",
        "the ring selects another namespace for a while",
        (Step("select", "nowhere"), _pause(5), Step("select", "chaos"), _OWNED),
        0,
        30,
        modes=("service",),
    ),
    Scenario(
        "C16",
        "sharders lose the right to the children, and a shard is killed",
        (
            Step("forbid children"),
            _pause(2),
            Step("kill", "victim"),
            Step("explained", "configmaps", leases=DETECT, seconds=30),
            _OWNED,
            Step("allow"),
        ),
        2 * DETECT,
        SLACK,
        modes=("service",),
    ),
    Scenario(
        "C18",
        "a user gives objects to other shards and to nobody, and puts drains on them",
        (Step("meddle", seconds=8),),
        1,
        SLACK,
        modes=BY_LABELS,
    ),
    _confirmed(
        "strict-kill",
        "strict hand-over: SIGKILL of a shard; nobody knows until an operator says so",
        Step("release", "victim"),
    ),
    _confirmed(
        "strict-restart",
        "strict hand-over: SIGKILL of a shard, and a start under its name on its machine, when others wait for it",
        Step("start", "victim"),
    ),
    Scenario(
        "strict-pods",
        "strict hand-over: SIGKILL of a shard whose pod is reported ended",
        (Step("kill", "follower"), Step("report", "follower"), _OWNED),
        0,
        5,
        modes=BY_LABELS,
        setup=Setup(pods=True, strict=True),
    ),
    _stood_still(
        "stop-loose",
        "a shard whose machine stood still goes on beside others; without strict hand-over",
        Step("continue", "victim"),
        _pause(3),
        strict=False,
        shows=("overlap",),
    ),
    _stood_still(
        "strict-stop",
        "strict hand-over: a shard whose machine stood still goes on, and ends",
        _ASKED,
        Step("continue", "victim"),
        _pause(3),
        _OWNED,
    ),
    _stood_still(
        "strict-off",
        "strict hand-over: a machine stands still, an operator turns it off, and says so",
        _ASKED,
        Step("kill", "victim"),
        Step("release", "victim"),
        _OWNED,
    ),
    *(_without(measure, modes, _LATE, "stale write", "overlap") for measure, modes in _FENCES.items()),
    *(
        _without(measure, modes, 3 * (*_JOIN, _pause(4)), "overlap", "stale write")
        for measure, modes in _WAITS.items()
    ),
)

LEFT_OUT = {
    "C13-routine": "renewals in time, and tokens that expire, are in webhook, client and kube of kubeshard/tests",
    "C14-memory": "a process that runs out of memory gets SIGKILL, as in C1 and C5",
    "C15-crd": "CustomResourceDefinitions that change or go are in lab/tests/scenes and in simulations",
    "C16-priority": "API servers that answer 429 are in simulations: here they would not serve the witnesses, either",
    "C17": "Go and Python beside each other are in kubeshard/tests/interop, which builds the Go project",
}
