"""A control plane with two API servers, sharders and shards as processes, a way with faults between each of them and
what it talks to, and witnesses.

Guaranteed: nothing is left running, however the block is left.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from chaos_operator import GROUP, Errand
from chaos_ranges import Shares
from chaos_records import Change, Lived, Marked, Object, Record, Worked
from chaos_scenarios import Setup
from chaos_users import ERRANDS, MERGE, Answer, Requests, User, place
from chaos_witness import AUDIT_POLICY, AuditLogs, EtcdWatch, Journals
from fault_proxy import Way

from kubeshard.crd import definition
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_lab.demo.processes import RingProcesses

RING, NAMESPACE = "chaos", "chaos"
PLACES = tuple(f"{letter}-chaos" for letter in "abcdefghijkl")
"""Namespaces whose buckets are far from each other, so that each shard has some."""
SHARDER_USER = "system:serviceaccount:sharding-system:sharder"
OPERATOR = str(Path(__file__).with_name("chaos_operator.py"))
SHARD_LABEL = f"shard.alpha.sharding.timebertt.dev/{RING}"
DRAIN_LABEL = f"drain.alpha.sharding.timebertt.dev/{RING}"
NAME_LABEL = "kubernetes.io/metadata.name"
RINGS = "/apis/sharding.timebertt.dev/v1alpha1/controllerrings"
CLEAN_UP = "alpha.sharding.timebertt.dev/clean-up"
SHARDERS = "chaos-sharders"
_RBAC = "rbac.authorization.k8s.io/v1"
EVERYTHING = ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},)
NO_CHILDREN = (
    {"apiGroups": [""], "resources": ["secrets", "namespaces", "events"], "verbs": ["*"]},
    {
        "apiGroups": [
            GROUP,
            "sharding.timebertt.dev",
            "coordination.k8s.io",
            "admissionregistration.k8s.io",
            "events.k8s.io",
            "authorization.k8s.io",
            "authentication.k8s.io",
        ],
        "resources": ["*"],
        "verbs": ["*"],
    },
)
"""Everything that a sharder needs but the right to ConfigMaps, which are the children."""
STRICT = "alpha.sharding.timebertt.dev/strict-handover"
DONE = f"{GROUP}/done"
MARK = f"{GROUP}/by"
_POLL = 0.02
_RESTART_AFTER = 0.5
_LONG_WORK = 3.0
_JUST = 0.2
DEFAULT = Setup()
SERVERS = ("kube-apiserver", "kube-apiserver-2")


class NotSettled(Exception):
    """What was waited for did not come."""


class Processes(RingProcesses):
    """Each process has a user and a way of its own."""

    def __init__(
        self,
        kubeconfig: Callable[[str], Path],
        folder: Path,
        lease_seconds: float,
        note: Callable[[Lived], None],
    ) -> None:
        super().__init__(folder / "none", folder, lease_seconds)
        self._kubeconfig = kubeconfig
        self._note = note
        self.all: list[Child] = []

    def start(self, name: str, *arguments: str, **environment: str) -> Child:
        child = super().start(name, *arguments, KUBECONFIG=str(self._kubeconfig(name)), **environment)
        self.all.append(child)
        self._note(Lived(time.monotonic(), name, child.pid, "started"))
        return child

    def running(self, name: str) -> bool:
        return name in self.names and self[name].running


class Rig:
    """`shards`: how many; `mode`: `service`, `in-manager`, `ranges` or `namespaces`, which is ranges by namespace. With
    ranges shards are their own sharders, too, and one of the API servers selects hash ranges, the other one ignores
    them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        shards: int,
        objects: int,
        lease: float,
        mode: str = "service",
        setup: Setup = DEFAULT,
        users: bool = True,
        seed: int = 0,
    ) -> None:
        self.folder = folder
        self.lease = lease
        self.mode = mode
        self.by = {"ranges": "uid", "namespaces": "namespace"}.get(mode, "")
        """What is hashed, by ranges."""
        self.places = PLACES if self.by == "namespace" else (NAMESPACE,)
        """The namespaces of the objects."""
        self.shards = tuple(f"shard-{letter}" for letter in "abcdefghij"[:shards])
        self.sharders = ("sharder-1", "sharder-2") if mode == "service" else ()
        self.ways: dict[str, Way] = {}
        self.records: list[Record] = []
        self.lives: list[Lived] = []
        self.worked: list[Worked] = []
        self.random = random.Random(seed)
        self.left_dead: set[str] = set()
        """Shards and sharders that are not started again when they have died, as a kubelet would."""
        self.asked: set[int] = set()
        """Processes that were told to end."""
        self._objects = objects
        self.setup = setup
        self._users = users
        self._uids: dict[str, str] = {}
        self._restart_at: dict[str, float] = {}
        self._known: dict[int, tuple[str, Child]] = {}
        self._round = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        self.folder.mkdir(parents=True, exist_ok=True)
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        common = [f"--audit-policy-file={policy}", "--storage-media-type=application/json"]
        logs = [self.folder / f"audit-{number}.log" for number in (1, 2)]
        self._flags = [(*common, f"--audit-log-path={log}") for log in logs]
        if self.by:
            for number, selects in enumerate(("true", "false")):
                self._flags[number] += (f"--feature-gates=ShardedListAndWatch={selects}",)
        async with AsyncExitStack() as stack:
            kube = self.kube = ControlPlane(arguments=self._flags[0], folder=self.folder / "control-plane")
            stack.callback(kube.stop)
            kube.spawn()
            await self.until(kube.ready, 120, "an API server")
            self._ports = kube.port, free_port()
            etcd = self.ways["etcd"] = await stack.enter_async_context(Way([_address(kube.etcd_url)]))
            self._etcd = f"http://127.0.0.1:{etcd.port}"
            kube.start_api_server(SERVERS[1], self._ports[1], etcd=self._etcd, arguments=self._flags[1])
            await self.serving(1)
            self._processes_of_servers()
            for number, name in enumerate((*self.sharders, *self.shards, "user")):
                servers = [("127.0.0.1", port) for port in self._ports]
                if number % 2:
                    servers.reverse()
                self.ways[name] = await stack.enter_async_context(Way(servers))
            self.admin = self._requests("admin", self._ports[0])
            shares = Shares(RING) if self.by else None
            namespaces = {NAMESPACE, *self.places}
            self.etcd = EtcdWatch(kube.etcd_url, namespaces, self.records.append, shares)
            self.etcd.start()
            stack.callback(self.etcd.stop)
            self._audit, self._journals = AuditLogs(logs, namespaces), Journals(self.folder)
            processes = self.processes = Processes(self._kubeconfig, self.folder, self.lease, self._lived)
            stack.callback(processes.stop_all)
            await self._install()
            if self.sharders:
                self.webhook = await stack.enter_async_context(Way([("127.0.0.1", processes.webhook_port)]))
                self.ways["webhook"] = self.webhook
            for name in (*self.sharders, *self.shards):
                self.start(name)
            watching = asyncio.create_task(self._watch_processes())
            stack.push_async_callback(_cancelled, watching)
            for number in range(self._objects):
                await self._create(f"errand-{number}")
            if self._users:
                requests = self._requests("user", self.ways["user"].port)
                user = User(requests, self.places, self.records.append)
                working = asyncio.create_task(user.work())
                stack.push_async_callback(_cancelled, working)
            await self.settled(180)
            yield self

    # Processes

    def start(self, name: str, clock_off: float = 0.0) -> None:
        if name in self.sharders:
            bind = f"127.0.0.1:{self.processes.webhook_port}"
            webhook = {
                "server": {"bindAddress": bind, "reusePort": True},
                "config": {"clientConfig": {"url": f"https://127.0.0.1:{self.webhook.port}/"}},
            }
            child = self.processes.start_sharder(name, webhook)
        else:
            options = {"ring": RING, "shard": name, "namespace": NAMESPACE, "mode": "shard"}
            options |= {"journal": str(self.folder / f"{name}.journal"), "lease-seconds": f"{self.lease:g}"}
            if self.mode != "service":
                options["mode"] = "both"
            if self.setup.pods:
                options["pod-uid"] = self._uids[name]
            if self.setup.unwatched:
                options["works"] = f"{_LONG_WORK:g}"
            words = [word for option, value in options.items() for word in (f"--{option}", value)]
            words += ["--unwatched"] * self.setup.unwatched
            words += ["--strict"] * (self.setup.strict and self.mode == "in-manager")
            words += ["--by", self.by, "--within", *self.places] if self.by else []
            words += ["--without", self.setup.without] if self.setup.without else []
            child = self.processes.start(name, OPERATOR, *words, f"--clock-off={clock_off}")
        self._known[child.pid] = name, child

    def start_liar(self) -> Child:
        """Starts a process that works as the first shard, without a Lease and without proofs."""
        options = {"ring": RING, "shard": self.shards[0], "namespace": NAMESPACE, "works": "0.05"}
        options |= {"journal": str(self.folder / "liar.journal"), "lease-seconds": f"{self.lease:g}"}
        words = [word for option, value in options.items() for word in (f"--{option}", value)]
        return self.processes.start("liar", OPERATOR, *words, "--lies")

    def signal(self, name: str, number: int) -> None:
        child = self._child(name)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.asked.add(child.pid)
        what = {signal.SIGSTOP: "stopped", signal.SIGCONT: "continued"}.get(number)
        if what == "stopped":
            self._lived(Lived(time.monotonic(), name, child.pid, what))
        child.signal(number)
        if what == "continued":
            self._lived(Lived(time.monotonic(), name, child.pid, what))
        if number == signal.SIGKILL:
            child.kill()
            self._died()

    def pid(self, name: str) -> int:
        return self._child(name).pid

    def alive(self, name: str) -> bool:
        return self._child(name).running

    def start_server(self, number: int) -> None:
        """Starts an API server again."""
        etcd = "" if number == 0 else self._etcd
        port = self._ports[number]
        # Only API servers that are ready are reached, as by a load balancer.
        for way in self._to_servers():
            way.servers = [address for address in way.servers if address[1] != port]
        self.kube.start_api_server(SERVERS[number], port, etcd=etcd, arguments=self._flags[number])
        self._processes_of_servers()

    async def serving(self, number: int, within: float = 120.0) -> None:
        """Waits until the API server serves; not in the loop, through which it reaches etcd."""
        until = time.monotonic() + within
        while not await asyncio.to_thread(self.kube.serves, self._ports[number]):
            if time.monotonic() > until:
                raise NotSettled(f"{SERVERS[number]} does not serve")
            await asyncio.sleep(_POLL)
        address = ("127.0.0.1", self._ports[number])
        for way in self._to_servers():
            if address not in way.servers:
                way.servers.append(address)

    def _to_servers(self) -> Sequence[Way]:
        return [way for name, way in self.ways.items() if name not in ("etcd", "webhook")]

    def leader(self) -> str:
        """The process that is the sharder at the moment; "" if none is."""
        if self.sharders:
            spec = self.etcd.latest.get(("lease", "sharding-system/sharder"), {}).get("spec", {})
        else:
            spec = self.etcd.latest.get(("lease", f"{NAMESPACE}/sharder-{RING}"), {}).get("spec", {})
        holder = str(spec.get("holderIdentity") or "")
        return next((name for name in (*self.sharders, *self.shards) if holder.startswith(name)), "")

    @property
    def leader_lease(self) -> str:
        """The place of the sharder's Lease."""
        return "sharding-system/leases/sharder" if self.sharders else f"{NAMESPACE}/leases/sharder-{RING}"

    def to_server(self, name: str, number: int | None) -> None:
        """Moves a process's connections to one API server; None: wherever one serves."""
        way = self.ways[name]
        ports = self._ports if number is None else self._ports[number : number + 1]
        way.servers = [("127.0.0.1", port) for port in ports]
        way.reset()

    async def report(self, name: str) -> None:
        """Writes the status of the shard's pod as its kubelet does."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = {"exitCode": 137, "reason": "Error", "startedAt": now, "finishedAt": now}
        state = {"running": {"startedAt": now}} if self.alive(name) else {"terminated": ended}
        status = {"name": "operator", "image": "operator", "imageID": "operator", "restartCount": 0}
        status |= {"ready": self.alive(name), "state": state}
        body = {"status": {"phase": "Running", "containerStatuses": [status]}}
        await self._must("PATCH", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status", body, MERGE)

    async def kubectl_shard(self, *words: str) -> str:
        """What the command prints for a cluster administrator. Raises NotSettled if it fails."""
        command = [sys.executable, "-c", "from kubeshard.cli import shard_main; shard_main()", *words]
        asked = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig("admin"))},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed = (await asked.communicate())[0].decode()
        if asked.returncode:
            raise NotSettled(f"kubectl shard {' '.join(words)}: {printed}")
        return printed

    # What cluster administrators do

    async def create_ring(self) -> None:
        ring = _named("sharding.timebertt.dev/v1alpha1", "ControllerRing", RING)
        if self.setup.strict:
            ring["metadata"]["annotations"] = {STRICT: "true"}
        ring["spec"] = {
            "resources": [
                {
                    "group": GROUP,
                    "resource": "errands",
                    "controlledResources": [{"group": "", "resource": "configmaps"}],
                }
            ],
            "namespaceSelector": {"matchLabels": {NAME_LABEL: NAMESPACE}},
        }
        await self._must("POST", RINGS, ring)

    async def delete_ring(self, within: float) -> None:
        """Deletes the ring when none of its labels are left. Raises NotSettled."""
        await self._must("PATCH", f"{RINGS}/{RING}", {"metadata": {"finalizers": [CLEAN_UP]}}, MERGE)
        await self._must("DELETE", f"{RINGS}/{RING}", None)
        until = time.monotonic() + within
        while (await self.admin.send("GET", f"{RINGS}/{RING}")).status != 404:
            if time.monotonic() > until:
                raise NotSettled(f"the ring is not gone within {within:g} s")
            await asyncio.sleep(0.2)
        if left := sorted(name for name, obj in self.mains().items() if owner(obj)):
            raise NotSettled(f"the ring is gone, and {', '.join(left[:5])} have its label")

    async def select(self, namespace: str) -> None:
        """The ring is one of this namespace."""
        selector = {"namespaceSelector": {"matchLabels": {NAME_LABEL: namespace}}}
        await self._must("PATCH", f"{RINGS}/{RING}", {"spec": selector}, MERGE)

    async def allow_sharders(self, rules: Sequence[Mapping[str, Any]]) -> None:
        await self._must("PATCH", f"/apis/{_RBAC}/clusterroles/{SHARDERS}", {"rules": rules}, MERGE)

    async def explained(self, word: str, within: float) -> None:
        """Waits until a condition of the ring says something about it. Raises NotSettled."""
        until = time.monotonic() + within
        while True:
            ring = (await self.admin.send("GET", f"{RINGS}/{RING}")).body
            said = [each["message"] for each in ring.get("status", {}).get("conditions", ())]
            if any(word in each for each in said):
                return
            if time.monotonic() > until:
                raise NotSettled(f"not within {within:g} s: no condition of the ring is about {word}: {said}")
            await asyncio.sleep(0.2)

    async def delete_certificate(self) -> None:
        """Deletes the Secret with the certificate and the authorities of the webhook."""
        secrets = "/api/v1/namespaces/sharding-system/secrets"
        found = (await self.admin.send("GET", secrets)).body["items"]
        for secret in found:
            await self._must("DELETE", f"{secrets}/{secret['metadata']['name']}", None)
        if not found:
            raise NotSettled("the webhook has no certificate")

    def assigned_at_birth(self, since: float) -> bool:
        """Whether the webhook has assigned an object that was created since then."""
        return any(
            isinstance(each, Change)
            and each.at > since
            and each.kind == "main"
            and each.before is None
            and bool(each.after and owner(each.after))
            for each in self.records
        )

    def drained(self, since: float) -> bool:
        """Whether a shard was asked for an object since then."""
        changes = (each for each in self.records if isinstance(each, Change) and each.at > since)
        return any(
            DRAIN_LABEL in (each.after or {}).get("metadata", {}).get("labels", ()) for each in changes
        )

    async def compact(self) -> None:
        """etcd forgets all versions but the present ones."""
        versions = [int(obj["metadata"]["resourceVersion"]) for obj in [*self.etcd.latest.values()]]
        asked = Request(
            f"{self.kube.etcd_url}/v3/kv/compaction", json.dumps({"revision": max(versions)}).encode()
        )
        with await asyncio.to_thread(urlopen, asked) as answer:
            answer.read()

    async def throttle(self, names: Sequence[str], seconds: float) -> None:
        """The processes get a tenth of a processor, in slices, as by a limit of their cgroup."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for number, pause in ((signal.SIGSTOP, 0.09), (signal.SIGCONT, 0.01)):
                for name in names:
                    if self.alive(name):
                        self._child(name).signal(number)
                await asyncio.sleep(pause)

    # What there is

    def busy(self, shard: str) -> bool:
        """Whether it is at work on an object of the ring that does not belong to the user, and has just begun."""
        self._collect()
        ended = {(each.pid, each.run) for each in self.worked if each.what == "ended"}
        since = time.monotonic() - _JUST
        return any(
            each.shard == shard
            and each.what == "began"
            and each.at > since
            and each.name.startswith("errand-")
            and (each.pid, each.run) not in ended
            for each in self.worked
        )

    def mains(self) -> Mapping[str, Object]:
        return {name: obj for (kind, name), obj in [*self.etcd.latest.items()] if kind == "main"}

    def owned(self) -> bool:
        """Whether each object is on a shard that runs, and is not being drained."""
        living = {name for name in self.shards if self.processes.running(name)}
        labels = [obj["metadata"].get("labels") or {} for obj in self.mains().values()]
        return all(each.get(SHARD_LABEL) in living and DRAIN_LABEL not in each for each in labels)

    def path(self, main: str) -> str:
        return f"{ERRANDS.format(place(main, self.places))}/{main}"

    async def settled(self, within: float) -> None:
        """Asks for another round of each object, and waits until the shard that has it has done it. Raises
        NotSettled.
        """
        self._round += 1
        names = [name for name in self.mains() if name.startswith("errand-")]
        for name in names:
            await self._must("PATCH", self.path(name), {"spec": {"round": self._round}}, MERGE)
        await self.until(lambda: not self._unsettled(), within, lambda: "; ".join(self._unsettled()[:5]))

    def _unsettled(self) -> Sequence[str]:
        found = []
        for name in self.shards:
            lease = self.etcd.latest.get(("lease", f"{NAMESPACE}/{name}"), {})
            if lease.get("spec", {}).get("holderIdentity") != name or not self.processes.running(name):
                found.append(f"{name} is no shard")
        living = {name for name in self.shards if self.processes.running(name)}
        for name, obj in self.mains().items():
            meta = obj["metadata"]
            labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
            shard, done = labels.get(SHARD_LABEL, ""), annotations.get(DONE, "")
            by = annotations.get(MARK, "").partition("/")[0]
            child = self.etcd.latest.get(("child", name), {"metadata": {}})["metadata"].get("labels") or {}
            if shard not in living or DRAIN_LABEL in labels:
                found.append(f"{name} is {shard or 'nobody'}'s{', drained' if DRAIN_LABEL in labels else ''}")
            elif done != str(obj["spec"].get("round", 0)) or by != shard:
                found.append(f"{name} of {shard}: {by} has done {done or 'nothing'}")
            elif child.get(SHARD_LABEL) != shard:
                found.append(f"the child of {name} is {child.get(SHARD_LABEL)}'s, not {shard}'s")
        return found or self._idle()

    def _idle(self) -> Sequence[str]:
        """The shards that have not begun with anything: what is due to them is still to come."""
        self._collect()
        at_work = {each.pid for each in self.worked}
        return [f"{name} has not worked yet" for name in self.shards if self.pid(name) not in at_work]

    async def until(
        self, condition: Callable[[], object], within: float, what: str | Callable[[], str]
    ) -> float:
        """Waits for it; returns how long. Raises NotSettled."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > within:
                text = what if isinstance(what, str) else what()
                raise NotSettled(f"not within {within:g} s: {text}")
            await asyncio.sleep(_POLL)
        return time.monotonic() - began

    def begin(self) -> None:
        """Drops the records of the last repeat, and begins those of the next."""
        self._collect()
        now = time.monotonic()
        self.records[:] = [Marked(now, "began"), *self.etcd.snapshot(now)]

    def mark(self, what: str) -> None:
        self.records.append(Marked(time.monotonic(), what))

    def collected(self) -> Sequence[Record]:
        """The records of this repeat; with the lives of processes and what they worked on, which may have begun before
        it.
        """
        self._collect()
        return [*self.records, *self.lives, *self.worked]

    def ended(self) -> list[str]:
        """Shards and sharders that have ended in this repeat although nobody told them to."""
        since, ours = self.records[0].at, {*self.shards, *self.sharders}
        return [
            each.process
            for each in self.lives
            if each.what == "died" and each.at > since and each.process in ours and each.pid not in self.asked
        ]

    def _collect(self) -> None:
        self.records += self._audit.new()
        self.worked += self._journals.new()

    # Inside

    def _lived(self, record: Lived) -> None:
        self.lives.append(record)

    def _child(self, name: str) -> Child:
        return next(child for of, child in reversed([*self._known.values()]) if of == name)

    def _processes_of_servers(self) -> None:
        for child in self.kube.children:
            if child.pid not in self._known:
                self._known[child.pid] = child.name, child
                self._lived(Lived(time.monotonic(), child.name, child.pid, "started"))

    def _died(self) -> None:
        for pid, (name, child) in [*self._known.items()]:
            if not child.running and not any(each.pid == pid and each.what == "died" for each in self.lives):
                self._lived(Lived(time.monotonic(), name, pid, "died"))

    async def _watch_processes(self) -> None:
        while True:
            self._died()
            now = time.monotonic()
            for name in {*self.shards, *self.sharders} - self.left_dead:
                if self.alive(name):
                    self._restart_at.pop(name, None)
                elif now > self._restart_at.setdefault(name, now + _RESTART_AFTER):
                    self.start(name)
            await asyncio.sleep(_POLL)

    async def _install(self) -> None:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for document in (definition(Errand), controller_ring_crd()):
            await self._must("POST", definitions, document)
        for name in {NAMESPACE, "sharding-system", *self.places}:
            await self._must("POST", "/api/v1/namespaces", _named("v1", "Namespace", name))
        await self._served(ERRANDS.format(NAMESPACE))
        if self.mode == "service":
            await self._served(RINGS)
            await self.create_ring()
            for role in (_named(_RBAC, "ClusterRole", SHARDERS) | {"rules": EVERYTHING}, _binding()):
                await self._must("POST", f"/apis/{_RBAC}/{role['kind'].lower()}s", role)
        for name in self.shards if self.setup.pods else ():
            pod = _named("v1", "Pod", name)
            pod["spec"] = {"containers": [{"name": "operator", "image": "operator"}]}
            made = await self._must("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
            self._uids[name] = made.body["metadata"]["uid"]

    async def _served(self, path: str) -> None:
        for _ in range(600):
            if (await self.admin.send("GET", path)).status == 200:
                return
            await asyncio.sleep(0.05)
        raise NotSettled(f"{path} is not served")

    async def _create(self, name: str) -> None:
        errand = {**_named(f"{GROUP}/v1", "Errand", name), "spec": {"round": 0}}
        await self._must("POST", self.path(name).rpartition("/")[0], errand)

    async def _must(self, method: str, path: str, body: Any, kind: str = "application/json") -> Answer:
        answer = await self.admin.send(method, path, body, kind)
        if answer.status >= 300:
            raise NotSettled(f"{method} {path}: {answer}")
        return answer

    def _requests(self, user: str, port: int) -> Requests:
        pair = self.kube.client_certificate(user, ["system:masters"])
        file = self.folder / f"{user}.pem"
        file.touch(mode=0o600)
        file.write_bytes(pair.certificate + pair.private_key)
        return Requests(port, self.kube.certificate_authority, file)

    def _kubeconfig(self, name: str) -> Path:
        """Of the process: a user of its own, through its way."""
        file = self.folder / f"{name}.kubeconfig"
        if file.exists():
            return file
        user = SHARDER_USER if name in self.sharders else "admin" if name == "admin" else f"shard:{name}"
        groups = [SHARDERS] if name in self.sharders else ["system:masters"]
        pair = self.kube.client_certificate(user, groups)
        port = self.ways[name].port if name in self.ways else self._ports[0]
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": f"https://127.0.0.1:{port}",
                        "certificate-authority": str(self.kube.certificate_authority),
                    },
                }
            ],
            "users": [
                {
                    "name": "u",
                    "user": {
                        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
                        "client-key-data": base64.b64encode(pair.private_key).decode(),
                    },
                }
            ],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(document))
        return file


def owner(main: Object) -> str:
    """The shard of an object; "" for none."""
    return str((main["metadata"].get("labels") or {}).get(SHARD_LABEL, ""))


def _named(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def _binding() -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        **_named(_RBAC, "ClusterRoleBinding", SHARDERS),
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": SHARDERS},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": SHARDERS}],
    }


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
