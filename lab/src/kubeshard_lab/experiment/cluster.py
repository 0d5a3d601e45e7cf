"""An experiment on a cluster in which an operator and what shards its objects are installed: nothing is started there.

| scenario | what it does to the operator, through the API |
|---|---|
| `chaos` | deletes a pod, whose name is that of a ready shard |
| `rolling-update` | changes an annotation of its Deployment's pod template, as `kubectl rollout restart` does |

The other disturbances, and a cold start, need the programs' processes, so these scenarios are refused.

Guaranteed: of what existed before, only those pods and that annotation are changed. All that the run creates has its
label, and is deleted by this label however the run ends, unless this process is killed. Not guaranteed: that a cluster
that does not answer is cleaned up; then LeftBehind says how to do it. Neither processes nor metrics are watched.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from kubeshard.client.client import Client
from kubeshard.client.discovery import KindNotServed
from kubeshard.core import errors
from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import metadata_only
from kubeshard.core.patches import MergePatch
from kubeshard.core.times import micro_time
from kubeshard.runtime.rng import one_of
from kubeshard.runtime.world import World
from kubeshard.sharding.api import ControllerRing
from kubeshard_lab.examples.webhosting.api import NAMESPACE, OPERATOR, Theme, Website
from kubeshard_lab.experiment.plan import LoadPlan
from kubeshard_lab.experiment.recording import Event, Usage
from kubeshard_lab.experiment.running import Experiment, Wanted, ready_shards
from kubeshard_lab.experiment.scenarios import Scenario
from kubeshard_lab.experiment.setups import Kind as SetupKind
from kubeshard_lab.experiment.subject import RUN_LABEL

REMOVED_WITHIN = 300.0
"""Seconds within which everything is gone, namespaces with everything in them."""
_POLL = 1.0
_PODS = metadata_only(Kind("", "v1", "Pod", "pods", True))
_DEPLOYMENTS = metadata_only(Kind("apps", "v1", "Deployment", "deployments", True))
_RESTARTED = "kubectl.kubernetes.io/restartedAt"


class LeftBehind(errors.KubeshardError):
    """What the run created could not be deleted."""


def check_scenario(scenario: Scenario) -> None:
    """Raises ConfigurationError if it needs the programs' processes."""
    if scenario.cold or scenario.disturbance not in ("none", "kill", "roll"):
        raise errors.ConfigurationError(
            f"{scenario.name} starts and stops the operator's or the sharder's processes, which cannot be done in a "
            "cluster: choose another scenario, or --on embedded"
        )


def grants(scenario: Scenario, ring: str) -> Iterator[Grant]:
    """The rights that a run needs: no more than these, and all of them."""
    yield Grant.on(Namespace, "list", "create", "delete")
    yield Grant.on(Namespace, "get", name="default")  # the control probe
    yield Grant.on(Theme, "list", "create", "delete", *(("patch",) if scenario.theme_every else ()))
    changed = ("patch",) if scenario.change_every or scenario.storm_every else ()
    yield Grant.on(Website, "list", "watch", "create", *changed, *(("delete",) if scenario.delete else ()))
    yield Grant.on(Lease, "list")
    yield Grant.on(ControllerRing, "get", name=ring)
    if scenario.disturbance == "kill":
        yield Grant.on(_PODS, "get", "delete", namespace=NAMESPACE)
    if scenario.disturbance == "roll":
        yield Grant.on(_DEPLOYMENTS, "get", "patch", namespace=NAMESPACE, name=OPERATOR)


async def found(client: Client, scenario: Scenario, ring: str) -> tuple[SetupKind, int]:
    """What the run will load: the set-up, and its shards. Raises Unprepared if something is missing; ApiError."""
    await _check_rights(client, scenario, ring)
    for cls in (Website, Theme):
        try:
            await client.discovery.kind(cls.KIND.group, kind=cls.KIND.kind, version=cls.KIND.version)
        except KindNotServed:
            raise errors.Unprepared(
                f"the cluster does not serve {cls.KIND.group_resource}: install the webhosting operator, "
                "python -m kubeshard_lab.examples.webhosting samples show --crds"
            ) from None
    there = True
    try:
        await client.get(ControllerRing, ring)
    except errors.NotFound:
        there = False
    shards = await ready_shards(client, ring)
    if not shards:
        lacks = (
            "has no ready shard" if there else "does not exist: there is neither a ControllerRing nor a shard"
        )
        raise errors.Unprepared(
            f"the ring {ring} {lacks}; install the webhosting operator with sharding and start it, or name its ring "
            "with --ring"
        )
    await _check_disturbed(client, scenario, {meta.name: meta.namespace for meta in shards})
    return "external" if there else "in-manager", len(shards)


async def _check_rights(client: Client, scenario: Scenario, ring: str) -> None:
    missing = []
    for grant in grants(scenario, ring):
        for verb in sorted(grant.verbs):
            group, resource_ = grant.resource
            where = grant.namespace or ALL
            if not await client.can_i(verb, group, resource_, where, name=grant.name):
                missing.append(f"{verb} {grant.resource}{f' {grant.name}' if grant.name else ''}")
    if missing:
        raise errors.Unprepared(
            f"the rights do not suffice: {', '.join(missing)}: bind the ClusterRole that `kubeshard manifests "
            f"experiment {scenario.name}` prints, or use another --context"
        )


async def _check_disturbed(client: Client, scenario: Scenario, shards: Mapping[str, str]) -> None:
    if scenario.disturbance == "kill":
        for name, namespace in shards.items():
            try:
                if namespace == NAMESPACE:
                    await client.get(_PODS, name, namespace)
                    continue
            except errors.NotFound:
                pass
            raise errors.Unprepared(
                f"{scenario.name} deletes pods in {NAMESPACE}, and the shard {name} is none of them"
            )
    if scenario.disturbance == "roll":
        try:
            await client.get(_DEPLOYMENTS, OPERATOR, NAMESPACE)
        except errors.NotFound:
            raise errors.Unprepared(
                f"{scenario.name} restarts the Deployment {OPERATOR} in {NAMESPACE}, which does not exist"
            ) from None


class OnCluster(Experiment):
    """The caller keeps ownership of the client."""

    def __init__(self, wanted: Wanted, world: World, client: Client) -> None:
        super().__init__(wanted, world)
        self._client = client.with_user_agent("experiment")
        self._victims = self._rng(1)

    @property
    def removal(self) -> str:
        kinds = f"namespaces,{Theme.KIND.group_resource}"
        return f"kubectl delete {kinds} -l {RUN_LABEL}={self.run.id}"

    async def conduct(self) -> None:
        """Raises LeftBehind, Unprepared if an object of the run exists already, NotAtWork; ApiError."""
        plan = LoadPlan(self._settings.scenario, self._rng(0))
        try:
            async with self._screen.showing(self.progress), self._background(self._tick()):
                try:
                    await self._create(plan)
                    await self._loads(plan)
                finally:
                    await self._remove()
        finally:
            self._end()

    async def _create(self, plan: LoadPlan) -> None:
        """Never an object that is there already: it would be deleted at the end."""
        self._doing = "preparing"
        for manifest in self._subject.foundation(plan):
            cls = Namespace if manifest["kind"] == "Namespace" else Theme
            obj = msgspec.convert(manifest, cls)
            try:
                await self._client.create(obj)
            except errors.AlreadyExists:
                raise errors.Unprepared(
                    f"{manifest['kind']} {obj.metadata.name} exists already, perhaps from another run with the same "
                    "--seed: choose another --seed"
                ) from None

    async def _remove(self) -> None:
        self._doing = "removing what it created"
        try:
            async with asyncio.timeout(REMOVED_WITHIN):
                for cls in (Namespace, Theme):
                    while await self._left(cls):  # noqa: ASYNC110 - the cluster removes them, step by step
                        await asyncio.sleep(_POLL)
        except (errors.ApiError, TimeoutError) as error:
            why = str(error) or f"it took more than {REMOVED_WITHIN:g} s"
            raise LeftBehind(
                f"not all that was created could be removed ({why}): remove it with {self.removal}"
            ) from error

    async def _left(self, cls: type[Namespace] | type[Theme]) -> bool:
        """Whether any is left. Deletes them."""
        try:
            left = await self._client.list_all(metadata_only(cls), label_selector=self._subject.selector)
            for obj in left:
                if not obj.metadata.deleting:
                    with suppress(errors.NotFound):
                        await self._client.delete(cls, obj.metadata.name, uid=obj.metadata.uid)
        except (errors.Unavailable, errors.Throttled, errors.Timeout):
            return True
        return bool(left)

    async def _beside_load(self) -> None:
        acts = {"kill": self._kill, "roll": self._roll}
        disturbance = self._settings.scenario.disturbance

        async def act() -> None:
            try:
                await acts[disturbance]()
            except errors.ApiError as error:
                self._note(Event(self._clock.wall(), "failed", "", f"{disturbance}: {error}"))

        await self._disturbed(act if disturbance in acts else None)

    async def _kill(self) -> None:
        shards = sorted(meta.name for meta in await ready_shards(self._client, self._subject.ring))
        if shards:
            victim = one_of(self._victims, shards)
            await self._client.delete(_PODS, victim, NAMESPACE)
            self._note(Event(self._clock.wall(), "killed", victim, "its pod was deleted"))

    async def _roll(self) -> None:
        stamp = {_RESTARTED: micro_time(self._clock.wall())}
        change = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        await self._client.patch(_DEPLOYMENTS, OPERATOR, NAMESPACE, MergePatch(change))
        self._note(Event(self._clock.wall(), "rolled", OPERATOR, "its Deployment was restarted"))

    def _read_usage(self) -> Sequence[Usage]:
        """This process's; its memory is the most that it ever had."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu, resident = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
        return [Usage(self._clock.wall(), "experiment", "tool", cpu, resident, used.ru_nvcsw, used.ru_nivcsw)]

    def _noted(self) -> Iterator[str]:
        yield f"objects moved {self._tracker.moves} times"
        yield (
            "in a cluster, neither processes nor metrics of operator, sharder and API server are read: waits in the "
            "queue and reads of the API server are not judged"
        )
