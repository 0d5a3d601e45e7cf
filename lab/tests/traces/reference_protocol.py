"""The protocol of the Go project (docs/defects.md) as it is, without our measures: a sharder and a shard that run as
processes of a simulation.

Faithful: what is read, when something is decided, from what, and what is written under which condition; leader election
as client-go does it; informers that list at version 0; work queues with the same back-off. Left out: status, events,
metrics, and namespace selectors. A test runs the same script on these and on our classes, and shows what goes wrong
here and does not there.
"""

from __future__ import annotations

import asyncio
import base64
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from xxhash import xxh64_intdigest

from kubeshard.core.times import micro_time, parse_time
from kubeshard.runtime.asgi import AsgiApp, Receive, Scope, Send
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, TransportError
from kubeshard.sharding.names import (
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
    WEBHOOK_NAME,
    drain_label,
    shard_label,
    webhook_config_name,
    webhook_path,
)
from kubeshard_lab.simulation.processes import Process

Obj = dict[str, Any]

LEASES = "/apis/coordination.k8s.io/v1"
RINGS = "/apis/sharding.timebertt.dev/v1alpha1/controllerrings"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
RESOURCES = {
    ("sim.example", "things"): ("/apis/sim.example/v1", "Thing"),
    ("", "configmaps"): ("/api/v1", "ConfigMap"),
}
"""What discovery says: the path of a resource's version, and its kind."""

LEASE, DEADLINE, RETRY = 15, 10.0, 2.0
"""Seconds: the duration of Leases, how long a renewal is attempted, and how often."""
GRACE = 30.0
"""Seconds that a stopped process waits for its workers."""
SYNC = 300.0
"""Seconds between full scans."""
TTL = 60.0
"""Seconds after which a Lease that nobody holds is deleted."""
FIVE_MINUTES = "300"


class Refused(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        super().__init__(f"{status} {body.decode()}")
        self.status = status


class Api:
    """Requests of one process. None has a time limit of its own."""

    def __init__(self, process: Process, agent: str) -> None:
        self._transport = process.inside.connect("http://sim", Tls())
        self._headers = {"User-Agent": agent, "Accept": "application/json"}
        self.cancelled = False
        """Whether requests fail, because the context that they are made in was cancelled."""

    async def call(self, method: str, target: str, body: Any = None, kind: str = "application/json") -> Any:
        headers = {**self._headers, "Content-Type": kind}
        request = HttpRequest(method, target, headers, None if body is None else json.dumps(body).encode())
        for _ in range(10):
            if self.cancelled:
                raise Refused(0, b"context canceled")
            answer = await self._transport.request(request)
            if answer.status != 429:
                break
            await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
        if answer.status >= 400:
            raise Refused(answer.status, answer.body)
        return json.loads(answer.body)

    async def patch(self, target: str, metadata: Mapping[str, Any]) -> Any:
        return await self.call("PATCH", target, {"metadata": metadata}, "application/merge-patch+json")

    async def watch(self, target: str) -> AsyncIterator[Obj]:
        async with self._transport.stream(HttpRequest("GET", target, self._headers)) as stream:
            if stream.status >= 400:
                raise Refused(stream.status, await stream.read())
            rest = b""
            async for chunk in stream.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)


Handler = Callable[[Obj | None, Obj | None], None]
"""Gets an object as it was and as it is; None: not there."""


class Informer:
    """The objects of a resource with these labels. The list is served from the API server's cache."""

    def __init__(self, api: Api, path: str, selector: str = "") -> None:
        self.objects: dict[tuple[str, str], Obj] = {}
        self.synced = asyncio.Event()
        self.handlers: list[Handler] = []
        self._api = api
        self._query = f"{path}?labelSelector={selector}&resourceVersion="

    async def run(self) -> None:
        while True:
            try:
                listed = await self._api.call("GET", self._query + "0")
            except (Refused, TransportError):
                await asyncio.sleep(1)
                continue
            there = {key_of(obj) for obj in listed["items"]}
            for key in [key for key in self.objects if key not in there]:
                self._set(key, None)
            for obj in listed["items"]:
                self._set(key_of(obj), obj)
            self.synced.set()
            await self._follow(listed["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        """Returns when everything has to be listed again."""
        while True:
            query = f"{self._query}{version}&watch=1&allowWatchBookmarks=true&timeoutSeconds={FIVE_MINUTES}"
            try:
                async for event in self._api.watch(query):
                    obj = event["object"]
                    if event["type"] == "ERROR":
                        return
                    version = obj["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._set(key_of(obj), None if event["type"] == "DELETED" else obj)
            except Refused:
                return
            except TransportError:
                await asyncio.sleep(1)

    def _set(self, key: tuple[str, str], obj: Obj | None) -> None:
        before = self.objects.pop(key, None)
        if obj is not None:
            self.objects[key] = obj
        for handler in self.handlers:
            handler(before, obj)


def key_of(obj: Obj) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class Queue:
    """Keys that wait for a worker. No key is worked on twice at once; what fails is repeated, ever later."""

    def __init__(self, base: float = 0.005, cap: float = 1000.0) -> None:
        self._base, self._cap = base, cap
        self._waiting: dict[Any, None] = {}
        self._busy = set[Any]()
        self._failures = Counter[Any]()
        self._changed = asyncio.Event()
        self._closed = False

    def add(self, key: Any) -> None:
        self._waiting[key] = None
        self._changed.set()

    def add_after(self, key: Any, seconds: float) -> None:
        asyncio.get_running_loop().call_later(max(0.0, seconds), self.add, key)

    async def work(self, reconcile: Callable[[Any], Awaitable[float | None]]) -> None:
        """A worker. `reconcile` returns after how many seconds the key is due again."""
        while not self._closed:
            key = next((key for key in self._waiting if key not in self._busy), None)
            if key is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            del self._waiting[key]
            self._busy.add(key)
            try:
                after = await reconcile(key)
            except (Refused, TransportError):
                self.add_after(key, min(self._base * 2 ** self._failures[key], self._cap))
                self._failures[key] += 1
            else:
                del self._failures[key]
                if after is not None:
                    self.add_after(key, after)
            self._busy.discard(key)
            self._changed.set()

    async def close(self) -> None:
        """Returns when no key is worked on any more."""
        self._closed = True
        while self._busy:  # noqa: ASYNC110 - nobody else has to know
            await asyncio.sleep(0.1)


class Elector:
    """Leader election on a Lease: a foreign holder's Lease is taken when its record has not changed for the duration
    that the record states, one's own at once.
    """

    def __init__(
        self,
        process: Process,
        namespace: str,
        name: str,
        identity: str,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._api = Api(process, "shard-lease")
        self._clock = process.clock
        self._path = f"{LEASES}/namespaces/{namespace}/leases"
        self._name, self._me, self._labels = name, identity, dict(labels or {})
        self._lease: Obj = {}
        self._seen: Obj = {}
        self._seen_at = 0.0

    async def acquire(self) -> None:
        await self._attempts()

    async def renew(self) -> None:
        """Returns when the Lease was not renewed in time, and after it was released."""
        while True:
            try:
                async with asyncio.timeout(DEADLINE):
                    await self._attempts()
            except TimeoutError:
                break
            await asyncio.sleep(RETRY)
        await self.release()

    async def release(self) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                await self._read()
                if self._leads():
                    await self._update(holderIdentity="", leaseDurationSeconds=1, acquireTime=self._now())
        except (Refused, TransportError, TimeoutError):
            return

    async def _attempts(self) -> None:
        while not await self._attempt():  # noqa: ASYNC110 - it polls
            await asyncio.sleep(RETRY)

    async def _attempt(self) -> bool:
        try:
            if self._leads() and self._valid():
                try:
                    await self._update()
                except Refused:
                    pass
                else:
                    return True
            try:
                await self._read()
            except Refused as error:
                if error.status != 404:
                    raise
                metadata = {"name": self._name, "labels": self._labels}
                spec = {"leaseTransitions": 0, "acquireTime": self._now()}
                lease = {"metadata": metadata, "spec": self._spec(**spec)}
                self._observe(await self._api.call("POST", self._path, lease))
                return True
            if self._seen.get("holderIdentity") and self._valid() and not self._leads():
                return False
            if self._leads():
                await self._update()
            else:
                transitions = self._seen.get("leaseTransitions", 0) + 1
                await self._update(acquireTime=self._now(), leaseTransitions=transitions)
        except (Refused, TransportError):
            return False
        return True

    def _leads(self) -> bool:
        return self._seen.get("holderIdentity") == self._me

    def _valid(self) -> bool:
        return self._seen_at + self._seen.get("leaseDurationSeconds", 0) > self._clock.monotonic()

    async def _read(self) -> None:
        self._observe(await self._api.call("GET", f"{self._path}/{self._name}"))

    async def _update(self, **spec: Any) -> None:
        metadata = self._lease["metadata"]
        metadata = {**metadata, "labels": {**metadata.get("labels", {}), **self._labels}}
        lease = {"metadata": metadata, "spec": {**self._seen, **self._spec(**spec)}}
        self._observe(await self._api.call("PUT", f"{self._path}/{self._name}", lease))

    def _spec(self, **spec: Any) -> Obj:
        return {"holderIdentity": self._me, "leaseDurationSeconds": LEASE, "renewTime": self._now(), **spec}

    def _now(self) -> str:
        return micro_time(self._clock.wall())

    def _observe(self, lease: Obj) -> None:
        if lease["spec"] != self._seen:
            self._seen, self._seen_at = lease["spec"], self._clock.monotonic()
        self._lease = lease


def state_of(lease: Obj, now: float) -> tuple[str, float]:
    """The state of a shard's Lease, by the time that its holder has written, and after how many seconds it is over."""
    spec = lease["spec"]
    duration = float(spec.get("leaseDurationSeconds", LEASE))
    renewed = parse_time(spec["renewTime"]) if "renewTime" in spec else now - duration
    expired = renewed + duration - now
    if spec.get("holderIdentity") != lease["metadata"]["name"]:
        return ("orphaned", 0.0) if expired + TTL <= 0 else ("dead", expired + TTL)
    if expired + duration <= 0:
        return "uncertain", duration
    return ("expired", expired + duration) if expired <= 0 else ("ready", expired)


def is_available(lease: Obj | None, now: float) -> bool:
    return lease is not None and state_of(lease, now)[0] in ("ready", "expired", "uncertain")


class HashRing:
    """Of a token that two shards have, the owner is the one that was added last."""

    def __init__(self, shards: Iterable[str]) -> None:
        self._owners = {
            xxh64_intdigest(f"{shard}{number}".encode()): shard for shard in shards for number in range(100)
        }
        self._tokens = sorted(self._owners)

    def owner(self, key: str) -> str:
        if not self._tokens:
            return ""
        index = bisect_left(self._tokens, xxh64_intdigest(key.encode()))
        return self._owners[self._tokens[index % len(self._tokens)]]


def main_key(obj: Obj, group: str, kind: str) -> str:
    if not obj["metadata"].get("name"):
        raise ValueError(
            "generateName is not supported on ring resources that are not controlled by another resource"
        )
    return f"{group}/{kind}/{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def controller_key(obj: Obj) -> str:
    """ "" for an object that has no controller."""
    for owner in obj["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            group = owner["apiVersion"].rpartition("/")[0]
            return f"{group}/{owner['kind']}/{obj['metadata'].get('namespace', '')}/{owner['name']}"
    return ""


class ReferenceSharder:
    """Implements what `Process.start` needs of a manager. Where the API server calls webhooks is in `apps`."""

    def __init__(self, process: Process, apps: dict[str, AsgiApp]) -> None:
        self._process, self._apps = process, apps
        self._api = Api(process, "sharder")
        self._clock = process.clock
        self._leases = Informer(self._api, f"{LEASES}/leases")
        self._rings = Informer(self._api, RINGS)
        self._leases.handlers.append(self._lease_changed)
        self._rings.handlers.append(self._ring_changed)
        self._lease_queue, self._ring_queue, self._pass_queue = Queue(), Queue(), Queue(5.0, SYNC)

    def stop(self) -> None:
        self._process.kill("killed: stopped")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._leases, self._rings):
                tasks.create_task(informer.run())
                await informer.synced.wait()
            self._apps[webhook_path("")] = self._answer
            elector = Elector(self._process, "sharding-system", "sharder", self._process.name)
            await elector.acquire()
            for _ in range(5):
                tasks.create_task(self._lease_queue.work(self._reconcile_lease))
                tasks.create_task(self._ring_queue.work(self._reconcile_ring))
                tasks.create_task(self._pass_queue.work(self._resync))
            await elector.renew()
            self._process.kill("killed: leader election lost")

    # -- what wakes whom

    def _lease_changed(self, before: Obj | None, after: Obj | None) -> None:
        ring = (after or before or {})["metadata"].get("labels", {}).get(RING_LABEL)
        if not ring:
            return
        now = self._clock.wall()
        if after and (before is None or state_of(before, now)[0] != state_of(after, now)[0]):
            self._lease_queue.add(key_of(after))
        if is_available(before, now) != is_available(after, now):
            self._pass_queue.add(ring)

    def _ring_changed(self, before: Obj | None, after: Obj | None) -> None:
        if after and (before is None or before["metadata"]["generation"] != after["metadata"]["generation"]):
            name = after["metadata"]["name"]
            self._ring_queue.add(name)
            self._pass_queue.add(name)
            for key in self._leases_of(name):
                self._lease_queue.add(key)

    def _leases_of(self, ring: str) -> dict[tuple[str, str], Obj]:
        """The ring's Leases, in the order of a Go map: none."""
        found = [
            (key, lease)
            for key, lease in self._leases.objects.items()
            if lease["metadata"].get("labels", {}).get(RING_LABEL) == ring
        ]
        return dict(sorted(found, key=lambda _: self._process.inside.rng.uniform(0, 1)))

    def _hash_ring(self, ring: str) -> tuple[HashRing, dict[str, bool]]:
        """The ring, and of each shard the first Lease that was found: whether it is available."""
        now, shards = self._clock.wall(), dict[str, bool]()
        leases = self._leases_of(ring).values()
        for lease in leases:
            shards.setdefault(lease["metadata"]["name"], is_available(lease, now))
        return HashRing(lease["metadata"]["name"] for lease in leases if is_available(lease, now)), shards

    # -- controllers, of the leader

    async def _reconcile_lease(self, key: tuple[str, str]) -> float | None:
        lease = self._leases.objects.get(key)
        if lease is None or ("", lease["metadata"]["labels"][RING_LABEL]) not in self._rings.objects:
            return None
        now = self._clock.wall()
        state, lasts = state_of(lease, now)
        metadata = lease["metadata"]
        path = f"{LEASES}/namespaces/{key[0]}/leases/{key[1]}"
        if metadata["labels"].get(STATE_LABEL) != state:
            labels = {STATE_LABEL: state}
            version = metadata["resourceVersion"]
            lease = await self._api.patch(path, {"resourceVersion": version, "labels": labels})
        if state == "orphaned":
            await self._api.call("DELETE", path)
            return None
        if state == "uncertain":
            spec = lease["spec"]
            taken = {
                "holderIdentity": SHARDER_IDENTITY,
                "leaseDurationSeconds": 2 * spec.get("leaseDurationSeconds", LEASE),
                "acquireTime": micro_time(now),
                "renewTime": micro_time(now),
                "leaseTransitions": spec.get("leaseTransitions", 0) + 1,
            }
            await self._api.call("PUT", path, {**lease, "spec": taken})
        return lasts

    async def _reconcile_ring(self, name: str) -> None:
        ring = self._rings.objects.get(("", name))
        if ring is None:
            return
        metadata = ring["metadata"]
        rules = [
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": [group],
                "apiVersions": ["*"],
                "resources": [resource],
                "scope": "*",
            }
            for group, resource, _ in resources_of(ring)
        ]
        selector = {"matchExpressions": [{"key": shard_label(name), "operator": "DoesNotExist"}]}
        service = {"namespace": "sharding-system", "name": "sharder", "path": webhook_path(name)}
        owner = {"apiVersion": ring["apiVersion"], "kind": ring["kind"], "name": name, "uid": metadata["uid"]}
        config = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {
                "name": webhook_config_name(name),
                "labels": {RING_LABEL: name},
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "webhooks": [
                {
                    "name": WEBHOOK_NAME,
                    "clientConfig": {"service": service},
                    "objectSelector": selector,
                    "rules": rules,
                    "failurePolicy": "Ignore",
                    "timeoutSeconds": 5,
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
        target = f"{WEBHOOKS}/{webhook_config_name(name)}?fieldManager=controllerring-controller"
        await self._api.call("PATCH", target, config, "application/apply-patch+yaml")

    async def _resync(self, name: str) -> float | None:
        """Looks at all objects; if anything about any of them fails, all are looked at again."""
        ring = self._rings.objects.get(("", name))
        if ring is None:
            return None
        hash_ring, shards = self._hash_ring(name)
        failures, tasks = [], list[asyncio.Task[Any]]()
        for group, resource, controlled in resources_of(ring):
            path, kind = RESOURCES[group, resource]
            try:
                listed = await self._api.call("GET", f"{path}/{resource}?resourceVersion=0&limit=500")
            except (Refused, TransportError) as error:
                failures.append(error)
                continue
            for obj in listed["items"]:
                key = controller_key(obj) if controlled else main_key(obj, group, kind)
                desired, current = (
                    hash_ring.owner(key),
                    obj["metadata"].get("labels", {}).get(shard_label(name), ""),
                )
                if not key or not desired or desired == current:
                    continue
                drain = not controlled and shards.get(current, False)
                labels = (
                    {drain_label(name): "true"}
                    if drain
                    else {shard_label(name): None, drain_label(name): None}
                )
                namespace, called = key_of(obj)
                metadata = {"resourceVersion": obj["metadata"]["resourceVersion"], "labels": labels}
                target = f"{path}/namespaces/{namespace}/{resource}/{called}"
                tasks.append(asyncio.create_task(self._api.patch(target, metadata), name="move"))
        done = await asyncio.gather(*tasks, return_exceptions=True)
        failures += [each for each in done if isinstance(each, Exception)]
        if failures:
            raise failures[0]
        return SYNC

    # -- the webhook, of every replica

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = json.loads((await receive())["body"])["request"]
        answer = {"uid": request["uid"], **self._review(scope["path"], request)}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(review).encode()})

    def _review(self, path: str, request: Obj) -> Obj:
        ring = self._rings.objects.get(("", path.removeprefix(webhook_path(""))))
        if ring is None:
            return {"allowed": False, "status": {"code": 500, "message": "error determining ControllerRing"}}
        name, obj = ring["metadata"]["name"], request["object"]
        labels = obj["metadata"].get("labels")
        if labels and labels.get(shard_label(name)):
            return {"allowed": True}
        of = request["resource"]["group"], request["resource"]["resource"]
        found = {
            (group, resource): controlled for group, resource, controlled in reversed(resources_of(ring))
        }
        try:
            key = controller_key(obj) if found[of] else main_key(obj, of[0], request["kind"]["kind"])
        except ValueError as error:
            return {"allowed": False, "status": {"code": 400, "message": str(error)}}
        if not key or not (shard := self._hash_ring(name)[0].owner(key)):
            return {"allowed": True}
        label = "/metadata/labels/" + shard_label(name).replace("~", "~0").replace("/", "~1")
        patch = [] if labels is not None else [{"op": "add", "path": "/metadata/labels", "value": {}}]
        patch.append({"op": "add", "path": label, "value": shard})
        coded = base64.b64encode(json.dumps(patch).encode()).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": coded}


def resources_of(ring: Obj) -> list[tuple[str, str, bool]]:
    """Group and resource of everything that the ring lists, each main resource before what it controls, and whether it
    is controlled.
    """
    found = []
    for main in ring["spec"].get("resources", ()):
        found.append((main["group"], main["resource"], False))
        found += [(each["group"], each["resource"], True) for each in main.get("controlledResources", ())]
    return found


Work = Callable[[Api, Informer, Obj, str], Awaitable[None]]
"""The author's reconcile: gets the children, the object as cached, and the name of the controller."""


class ReferenceShard:
    """Implements what `Process.start` needs of a manager: a process with these controllers of Things, which own
    ConfigMaps.
    """

    def __init__(
        self, process: Process, ring: str, name: str, work: Work, controllers: Iterable[str]
    ) -> None:
        self._process, self._ring, self._name, self._work = process, ring, name, work
        self._api = Api(process, "shard")
        selector = f"{shard_label(ring)}={name}"
        (things, _), (maps, _) = RESOURCES.values()
        self._path = things
        self._things = Informer(self._api, f"{things}/things", selector)
        self._children = Informer(self._api, f"{maps}/configmaps", selector)
        self._things.handlers.append(self._thing_changed)
        self._children.handlers.append(self._child_changed)
        self._queues = {controller: Queue() for controller in controllers}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._things, self._children):
                tasks.create_task(informer.run())
            elector = Elector(self._process, "ops", self._name, self._name, {RING_LABEL: self._ring})
            await elector.acquire()
            # A thread of its own, as goroutines have: the election goes on if the workers do not.
            thread = self._process.inside.thread("elector")
            electing = tasks.create_task(thread.run(lambda: self._keep(elector)))
            for informer in (self._things, self._children):
                await informer.synced.wait()
            for controller, queue in self._queues.items():
                for _ in range(5):
                    tasks.create_task(queue.work(partial(self._reconcile, controller)))
            await self._stopping.wait()
            self._api.cancelled = True
            closing = [tasks.create_task(queue.close()) for queue in self._queues.values()]
            await asyncio.wait(closing, timeout=GRACE)
            electing.cancel()
            await elector.release()
            self._process.kill("killed: stopped")

    async def _keep(self, elector: Elector) -> None:
        await elector.renew()
        self._process.kill("killed: leader election lost")

    def _thing_changed(self, before: Obj | None, after: Obj | None) -> None:
        obj = after or before
        assert obj is not None
        labels = obj["metadata"].get("labels", {})
        if drain_label(self._ring) in labels or labels.get(shard_label(self._ring)) == self._name:
            for queue in self._queues.values():
                queue.add(key_of(obj))

    def _child_changed(self, before: Obj | None, after: Obj | None) -> None:
        obj = after or before
        assert obj is not None
        for owner in obj["metadata"].get("ownerReferences", ()):
            if owner.get("controller") and owner["kind"] == "Thing":
                for queue in self._queues.values():
                    queue.add((obj["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, controller: str, key: tuple[str, str]) -> None:
        thing = self._things.objects.get(key)
        if thing is None:
            return
        labels = thing["metadata"].get("labels", {})
        if labels.get(shard_label(self._ring)) != self._name:
            return
        if drain_label(self._ring) in labels:
            nulls = {shard_label(self._ring): None, drain_label(self._ring): None}
            metadata = {"resourceVersion": thing["metadata"]["resourceVersion"], "labels": nulls}
            await self._api.patch(f"{self._path}/namespaces/{key[0]}/things/{key[1]}", metadata)
            return
        await self._work(self._api, self._children, thing, controller)
