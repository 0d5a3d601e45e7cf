"""Faults on real processes: `make chaos`.

    make chaos                                      # each scenario once, with a sharder service
    make chaos ARGS="--scenario C1,C9-long --repeat 10 --mode in-manager"

Starts etcd, two API servers, sharders and shards, inflicts what a scenario says, and judges what the witnesses saw.
Exits with 1 if anything was found. For a failure, what the witnesses saw is kept, and `--judge FILE` judges it again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chaos_checker import Finding, Verdict, check
from chaos_operator import GROUP
from chaos_records import Record, from_document, to_document
from chaos_rig import (
    DRAIN_LABEL,
    EVERYTHING,
    NAMESPACE,
    NO_CHILDREN,
    RING,
    SERVERS,
    SHARD_LABEL,
    NotSettled,
    Rig,
    owner,
)
from chaos_scenarios import ALL, LEFT_OUT, SCENARIOS, Scenario, Step
from chaos_users import MERGE

from kubeshard_apiserver.testing.folders import TemporaryFolder

SETTLED_WITHIN = 150.0
AGAIN = 15.0
"""Seconds after which shards begin with each of their objects again: three times what the operator asks for."""
RULES = (
    "stale write",
    "late write",
    "overlap",
    "orphan",
    "neglected",
    "unconfirmed",
    "failed request",
    "interference",
    "parted",
    "not settled",
    "no effect",
)
_LEASES = "/apis/coordination.k8s.io/v1/namespaces"


@dataclass
class Row:
    """What repeats of a scenario came to."""

    scenario: str
    repeats: int = 0
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    late_creates: int = 0
    late_writes: int = 0
    landed_unanswered: int = 0
    unattributed: int = 0
    excused_requests: int = 0
    excused_overlaps: int = 0
    excused_children: int = 0
    requests: int = 0
    moves: int = 0
    ended: int = 0
    """Shards and sharders that ended although nobody told them to: their Leases were lost."""
    without_owner: list[float] = field(default_factory=list)
    bound: float = 0.0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict, requests: int, ended: int, seconds: float) -> None:
        self.repeats += 1
        self.ended += ended
        for rule in RULES:
            self.found[rule] += verdict.count(rule)
        for name in (
            "late_creates",
            "late_writes",
            "landed_unanswered",
            "unattributed",
            "excused_requests",
            "excused_overlaps",
            "excused_children",
            "moves",
        ):
            setattr(self, name, getattr(self, name) + getattr(verdict, name))
        self.requests += requests
        self.without_owner.append(round(verdict.longest_without_owner, 2))
        self.seconds += seconds
        self.findings += [f"{each.rule}: {each.what}" for each in verdict.findings]


class Actions:
    """Does steps to a rig. `restarts`: shards that they kill are started again."""

    def __init__(self, rig: Rig, restarts: bool) -> None:
        self._rig = rig
        self._restarts = restarts
        self._victim = rig.random.choice(rig.shards)
        others = [name for name in rig.shards if name != rig.leader()]
        self._follower = self._victim if self._victim in others else others[0]
        self._ghost_name = f"ghost-{rig.random.randrange(10**6)}"  # what was deleted leaves a Lease behind
        self._before: dict[str, int] = {}
        self._leader = ""

    def without_effect(self) -> Sequence[str]:
        """The ways whose faults had none."""
        ways = self._rig.ways
        return [name for name, before in self._before.items() if ways[name].faults.effects == before]

    async def do(self, step: Step) -> None:
        seconds = step.lasts(self._rig.lease)
        match step.do:
            case "wait":
                await asyncio.sleep(seconds)
            case "until owned":
                await self._rig.until(self._rig.owned, seconds, "each object has a living shard")
            case "until effect":
                await self._rig.until(lambda: not self.without_effect(), seconds, "each fault has an effect")
            case "roll":
                for name in self._rig.shards:
                    await self._terminate(name)
                    await self._to(Step("start"), name, 0)
                    await asyncio.sleep(2.0)
            case "meddle":
                await self._meddle(seconds)
            case "delete ring":
                await self._rig.delete_ring(seconds)
            case "create ring":
                await self._rig.create_ring()
            case "select":
                await self._rig.select(step.whom)
            case "delete certificate":
                await self._rig.delete_certificate()
            case "until assigned at birth":
                since = time.monotonic()
                await self._rig.until(
                    lambda: self._rig.assigned_at_birth(since), seconds, "the webhook assigns new objects"
                )
            case "throttle":
                await self._rig.throttle(self._whom(step.whom), seconds)
            case "forbid children":
                await self._rig.allow_sharders(NO_CHILDREN)
            case "allow":
                await self._rig.allow_sharders(EVERYTHING)
            case "explained":
                await self._rig.explained(step.whom, seconds)
            case "until draining":
                since = time.monotonic()
                await self._rig.until(
                    lambda: self._rig.drained(since), seconds, "a shard is asked for objects"
                )
            case "until serving":
                await self._rig.serving(SERVERS.index(self._whom(step.whom)[0]))
            case "compact":
                await self._rig.compact()
            case "delete assignment":
                place = f"/api/v1/namespaces/{NAMESPACE}/configmaps/ranges-{RING}"
                await self._rig.admin.send("DELETE", place)
            case "create ghost":
                await self._ghost()
            case "delete ghost":
                await self._rig.admin.send("DELETE", f"{_LEASES}/{NAMESPACE}/leases/{self._ghost_name}")
            case _:
                if step.whom == "heir":
                    await self._rig.until(
                        lambda: self._rig.leader() not in ("", self._leader),
                        seconds,
                        "another one is the sharder",
                    )
                for name in self._whom(step.whom):
                    await self._to(step, name, seconds)

    async def _to(self, step: Step, name: str, seconds: float) -> None:
        rig = self._rig
        if step.do in ("fault", "reset", "half-open"):
            self._before.setdefault(name, rig.ways[name].faults.effects)
        match step.do:
            case "kill":
                self._leave_dead(name)
                rig.signal(name, signal.SIGKILL)
            case "stop":
                rig.signal(name, signal.SIGSTOP)
            case "continue":
                if rig.alive(name):
                    rig.signal(name, signal.SIGCONT)
            case "terminate":
                await self._terminate(name)
            case "start":
                if name in SERVERS:
                    rig.start_server(SERVERS.index(name))
                elif not rig.alive(name):
                    rig.left_dead.discard(name)
                    rig.start(name)
            case "start with wrong clock":
                rig.start(name, clock_off=rig.random.choice((-seconds, seconds)))
            case "report":
                await rig.report(name)
            case "fault":
                rig.ways[name].change(**step.faults)
            case "heal":
                rig.ways[name].heal()
            case "reset":
                rig.ways[name].reset()
            case "half-open":
                rig.ways[name].half_open()
            case "move" | "move back":
                rig.to_server(name, 1 if step.do == "move" else None)
            case "until busy":
                await rig.until(lambda: rig.busy(name), 30, f"{name} works")
            case "ask":
                await self._ask(name)
            case "release":
                await self._release(name)
            case "delete lease":
                place = f"{NAMESPACE}/leases/{name}"
                if name == "sharder":
                    place = rig.leader_lease
                await rig.admin.send("DELETE", f"{_LEASES}/{place}")
            case other:
                raise AssertionError(other)

    async def mended(self) -> None:
        """Ends what steps have left, and starts what has ended."""
        rig = self._rig
        for way in rig.ways.values():
            way.heal()
        for name in (*SERVERS, "etcd", *rig.sharders, *rig.shards):
            if rig.alive(name):
                rig.signal(name, signal.SIGCONT)
            elif name in SERVERS:
                rig.start_server(SERVERS.index(name))
        for number in range(len(SERVERS)):
            await rig.serving(number)
        for name in (*rig.sharders, *rig.shards):
            if not rig.alive(name):
                rig.start(name)
                if rig.setup.pods and name in rig.shards:
                    await rig.report(name)

    def _whom(self, whom: str) -> Sequence[str]:
        rig = self._rig
        self._leader = self._leader or rig.leader() or (rig.sharders or rig.shards)[0]
        return {
            "leader": [self._leader],
            "heir": [rig.leader()],
            "victim": [self._victim],
            "follower": [self._follower],
            "shards": rig.shards,
            "sharders": rig.sharders,
            "api-1": SERVERS[:1],
            "api-2": SERVERS[1:],
            "apis": SERVERS,
            "etcd": ["etcd"],
            "etcd-2": ["etcd"],  # the way of the second API server to it
            "webhook": ["webhook"],
            "sharder": ["sharder"],
            **dict(zip(("first", "second", "third"), ([name] for name in rig.shards), strict=False)),
        }[whom]

    def _leave_dead(self, name: str) -> None:
        if not self._restarts:
            self._rig.left_dead.add(name)

    async def _terminate(self, name: str) -> None:
        self._rig.left_dead.add(name)  # a step may start it again
        self._rig.signal(name, signal.SIGTERM)
        await self._rig.until(lambda: not self._rig.alive(name), 60, f"{name} ends")

    async def _ask(self, shard: str) -> None:
        """It has kept its objects, and those who ask are told that it is waited for, and what to do."""
        rig = self._rig
        kept = sorted(name for name, obj in rig.mains().items() if owner(obj) == shard)
        if not kept:
            raise NotSettled(f"{shard} has no objects any more")
        if rig.mode != "service":
            return  # there is no ControllerRing that could be asked
        about = {
            "why": await rig.kubectl_shard("why", f"errands.{GROUP}", kept[0], "-n", NAMESPACE),
            "status": await rig.kubectl_shard("status", RING),
        }
        for command, said in about.items():
            if shard not in said or "confirmed" not in said:
                raise NotSettled(f"kubectl shard {command} does not say who is waited for: {said}")

    async def _release(self, shard: str) -> None:
        self._leave_dead(shard)
        await self._rig.kubectl_shard("release", shard, "--ring", RING, "--yes")

    async def _meddle(self, seconds: float) -> None:
        rig, until = self._rig, time.monotonic() + seconds
        names = sorted(name for name in rig.mains() if name.startswith("errand-"))
        while time.monotonic() < until:
            name = rig.random.choice(names)
            labels = rig.random.choice(
                [
                    {SHARD_LABEL: rig.random.choice(rig.shards)},
                    {SHARD_LABEL: None},
                    {DRAIN_LABEL: "true"},
                    {SHARD_LABEL: "nobody-has-this-name"},
                ]
            )
            await rig.admin.send("PATCH", rig.path(name), {"metadata": {"labels": labels}}, MERGE)
            await asyncio.sleep(0.2)

    async def _ghost(self) -> None:
        far = "2099-01-01T00:00:00.000000Z"
        spec: dict[str, Any] = {
            "holderIdentity": self._ghost_name,
            "leaseDurationSeconds": round(self._rig.lease),
        }
        spec |= {"renewTime": far, "acquireTime": far}
        meta = {"name": self._ghost_name, "labels": {"alpha.sharding.timebertt.dev/controllerring": RING}}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        await self._rig.admin.send("POST", f"{_LEASES}/{NAMESPACE}/leases", lease)


async def repeat(rig: Rig, scenario: Scenario) -> tuple[Verdict, Sequence[Record], float]:
    """Inflicts it once, mends everything, and judges it."""
    actions, began = Actions(rig, scenario.restarts), time.monotonic()
    rig.begin()
    rig.left_dead.clear()
    problems: list[str] = []
    try:
        for step in scenario.steps:
            rig.mark(f"{step.do} {step.whom}")
            await actions.do(step)
    except NotSettled as problem:
        problems.append(str(problem))
    rig.left_dead.update(rig.shards, rig.sharders)
    try:
        await actions.mended()
        rig.left_dead.clear()
        rig.mark("mended")
        await rig.settled(SETTLED_WITHIN)
        rig.mark("settled")
    except NotSettled as problem:
        problems.append(str(problem))
    records = rig.collected()
    # Not in the loop, through which all processes reach their servers.
    verdict = await asyncio.to_thread(
        check,
        records,
        RING,
        scenario.bound(rig.lease),
        strict=rig.setup.strict,
        by_versions=bool(rig.by),
        late=_late(rig, scenario),
        again=AGAIN + scenario.unheard,
    )
    now = time.monotonic()
    if scenario.shows:
        if not verdict.count(scenario.shows[0]):
            verdict.findings.append(
                Finding(now, "no effect", f"without the measure there was no {scenario.shows[0]}")
            )
        verdict.findings = [each for each in verdict.findings if each.rule not in scenario.shows]
    verdict.findings += [Finding(now, "not settled", problem) for problem in problems]
    verdict.findings += [Finding(now, "no effect", f"faults of {name}") for name in actions.without_effect()]
    return verdict, records, now - began


async def run(options: argparse.Namespace, rows: list[Row]) -> None:
    """Adds to the rows as it goes on."""
    chosen = chosen_scenarios(options.scenario, options.mode)
    for setup in sorted({scenario.setup for scenario in chosen}):
        folder = TemporaryFolder("kubeshard-chaos-")
        rig = Rig(
            folder.path,
            shards=options.shards,
            objects=options.objects,
            lease=options.lease,
            mode=options.mode,
            setup=setup,
            seed=options.seed,
        )
        say(f"starting a control plane, {options.shards} shards and their objects")
        try:
            async with rig.running():
                for scenario in chosen:
                    if scenario.setup == setup:
                        rows.append(row := Row(scenario.name, bound=scenario.bound(options.lease)))
                        await repeated(rig, scenario, row, options)
        finally:
            folder.remove()


async def repeated(rig: Rig, scenario: Scenario, row: Row, options: argparse.Namespace) -> None:
    for number in range(1, options.repeat + 1):
        verdict, records, seconds = await repeat(rig, scenario)
        requests = sum(type(each).__name__ == "Asked" and not each.probe for each in records)  # type: ignore[union-attr]
        ended = rig.ended()
        row.add(verdict, requests, len(ended), seconds)
        bad = [f"{each.rule}: {each.what}" for each in verdict.findings]
        say(
            f"{scenario.name} {number}/{options.repeat}: {'; '.join(bad[:3]) or 'all hold'}; "
            f"{verdict.longest_without_owner:.1f} s without a shard, {verdict.moves} moves, "
            f"ended by themselves: {', '.join(ended) or 'none'}, {seconds:.0f} s"
        )
        if bad or options.keep:
            name = f"{scenario.name}-{options.mode}-{number}"
            kept = await asyncio.to_thread(keep, options.output, name, scenario, rig, records)
            say(f"what was seen is in {kept}")
        if verdict.count("not settled"):
            return  # what follows would be judged for it, too


def keep(output: Path, name: str, scenario: Scenario, rig: Rig, records: Iterable[Record]) -> Path:
    folder = output / name
    folder.mkdir(parents=True, exist_ok=True)
    bound = {"bound": scenario.bound(rig.lease), "strict": rig.setup.strict, "scenario": scenario.name}
    bound |= {"by_versions": bool(rig.by), "again": AGAIN + scenario.unheard, "late": _late(rig, scenario)}
    documents = [bound, *(to_document(each) for each in records)]
    (folder / "witness.jsonl").write_text("\n".join(map(json.dumps, documents)))
    for log in rig.folder.glob("*.log"):
        if not log.name.startswith("audit"):
            shutil.copy(log, folder)
    return folder / "witness.jsonl"


def _late(rig: Rig, scenario: Scenario) -> bool:
    """By labels, creates may always be late: of a shard whose object a user gave away, or whose ring was deleted."""
    return scenario.late or not rig.by


def judged(file: Path) -> Verdict:
    head, *documents = (json.loads(line) for line in file.read_text().splitlines())
    return check(
        map(from_document, documents),
        RING,
        head["bound"],
        strict=head["strict"],
        by_versions=head["by_versions"],
        late=head["late"],
        again=head["again"],
    )


def chosen_scenarios(names: str, mode: str) -> Sequence[Scenario]:
    """By name, or by what their names begin with. Each has to be there in the mode: nothing would be no finding."""
    there = [each for each in SCENARIOS if mode in each.modes]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if not any(_is_named(each, name) for each in there):
            known = ", ".join(each.name for each in there)
            raise SystemExit(f"there is no scenario {name} in mode {mode}; there are: {known}")
    return [each for each in there if not wanted or any(_is_named(each, name) for name in wanted)]


def _is_named(scenario: Scenario, name: str) -> bool:
    return scenario.name == name or scenario.name.startswith(f"{name}-")


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| scenario | repeats | stale writes, late ones | overlaps | orphans | worst time without owner, of at most "
        "| failed user requests | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = row.found
        lines.append(
            f"| {row.scenario} | {row.repeats} | {found['stale write']}, {found['late write']} "
            f"| {found['overlap']} | {found['orphan']} "
            f"| {max(row.without_owner, default=0):.1f} s, {row.bound:.0f} s | {found['failed request']} of "
            f"{row.requests} | {row.seconds:.0f} |"
        )
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", default="", help="names, separated by commas; C9 means all C9-...")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--mode", choices=ALL, default="service")
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--objects", type=int, default=20)
    parser.add_argument("--lease", type=float, default=15.0, help="seconds of a Lease")
    parser.add_argument("--output", type=Path, default=Path("build/chaos"), help="where failures are kept")
    parser.add_argument("--keep", action="store_true", help="keep what was seen if nothing was found, too")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="judge what was kept of a failure again")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    options = parser.parse_args()
    if options.list:
        for each in SCENARIOS:
            say(f"{each.name:14} {each.what}")
        for name, why in LEFT_OUT.items():
            say(f"{name:14} not here: {why}")
        return
    if options.judge:
        for finding in judged(options.judge).findings:
            say(f"{finding.at:.3f} {finding.rule}: {finding.what}")
        return
    say(f"seed {options.seed}")
    rows: list[Row] = []
    interrupted = False
    try:
        asyncio.run(run(options, rows))
    except KeyboardInterrupt:
        interrupted = True
    say(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    sys.exit(130 if interrupted else any(sum(row.found.values()) for row in rows))


if __name__ == "__main__":
    main()
