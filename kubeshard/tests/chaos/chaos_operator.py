"""The operator of chaos runs: a process per shard. Each reconcile marks the object, works a while, keeps a child, and
marks it again; a journal says when it began and ended.

It can be told to lie, so that the checker can show that it notices.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubeshard import ALL, CacheSettings, Scope, when
from kubeshard.client import Client, load_config
from kubeshard.controller import Context, Controller, Reconciler, Result, Watch
from kubeshard.core import ConfigMap, KubeObject, MergePatch, NotFound, ObjectMeta, controller_reference
from kubeshard.core.objects import Struct, field
from kubeshard.core.selectors import LabelSelector
from kubeshard.manager import Manager, run
from kubeshard.runtime import logs
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.pod import Pod
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD, SystemHost, World
from kubeshard.shard import DeclaredRing, LeaseTerms, Ranges, Sharding, scaled
from kubeshard.shard.sharding import MODES
from kubeshard.sharding.api import RingGroupResource, RingResource

GROUP = "chaos.kubeshard.test"
MARK, DONE = f"{GROUP}/by", f"{GROUP}/done"
NAME_LABEL = "kubernetes.io/metadata.name"
AGAIN = 5.0
QUICK = 0.3
"""Seconds that the objects of the user take at most, which do not exist for long."""


class ErrandSpec(Struct):
    round: int = 0


class Errand(KubeObject, group=GROUP, version="v1"):
    spec: ErrandSpec = field(default_factory=ErrandSpec)


RESOURCES = (
    RingResource(
        group=GROUP,
        resource="errands",
        controlled_resources=(RingGroupResource(group="", resource="configmaps"),),
    ),
)


class Journal:
    def __init__(self, file: Path, shard: str) -> None:
        self._file = file.open("a", buffering=1)
        self._shard = shard

    def note(self, name: str, run: int, what: str) -> None:
        self._file.write(
            json.dumps(
                {
                    "at": time.monotonic(),
                    "shard": self._shard,
                    "pid": os.getpid(),
                    "name": name,
                    "run": run,
                    "what": what,
                }
            )
            + "\n"
        )


class Runs(Reconciler[Errand]):
    def __init__(self, shard: str, journal: Journal, works: float) -> None:
        self._shard = shard
        self._journal = journal
        self._works = works
        self._numbers = itertools.count(1)
        self._random = random.Random()

    async def reconcile(self, ctx: Context, obj: Errand, /) -> Result:
        number = next(self._numbers)
        name = obj.metadata.name
        self._journal.note(name, number, "began")
        try:
            obj = await self._mark(ctx.client, obj, number, "began")
            works = min(self._works, QUICK) if name.startswith("user-") else self._works
            await asyncio.sleep(self._random.uniform(0.2, 1.0) * works)
            await self._child(ctx, obj, number)
            await self._mark(ctx.client, obj, number, "ended")
        finally:
            self._journal.note(name, number, "ended")
        return Result(requeue_after=self._random.uniform(0.5, 1.0) * AGAIN)

    def by(self, number: int, step: str) -> str:
        return f"{self._shard}/{os.getpid()}/{number}/{step}"

    async def _mark(self, client: Client, obj: Errand, number: int, step: str) -> Errand:
        marks = {MARK: self.by(number, step), DONE: str(obj.spec.round)}
        patch = MergePatch({"metadata": {"annotations": marks}})
        return await client.patch(Errand, obj.metadata.name, obj.metadata.namespace, patch, base=obj)

    async def _child(self, ctx: Context, obj: Errand, number: int) -> None:
        marks = {MARK: self.by(number, "child")}
        child = await ctx.get(ConfigMap, obj.metadata.name)
        if child is None:
            meta = ObjectMeta(
                name=obj.metadata.name,
                namespace=obj.metadata.namespace,
                annotations=marks,
                owner_references=(controller_reference(obj),),
            )
            await ctx.client.create(ConfigMap(metadata=meta))
        else:
            patch = MergePatch({"metadata": {"annotations": marks}})
            await ctx.client.patch(
                ConfigMap, child.metadata.name, child.metadata.namespace, patch, base=child
            )


class Lying(Runs):
    """Works on every object that it has ever had, without a right to, and proves nothing when it writes."""

    async def lie(self) -> None:
        async with Client(await load_config()) as client:
            while True:
                for obj in await client.list_all(Errand, ALL):
                    number = next(self._numbers)
                    self._journal.note(obj.metadata.name, number, "began")
                    for step in ("began", "ended"):
                        patch = MergePatch({"metadata": {"annotations": {MARK: self.by(number, step)}}})
                        try:
                            await client.patch(Errand, obj.metadata.name, obj.metadata.namespace, patch)
                        except NotFound:
                            break
                        await asyncio.sleep(self._works)
                    self._journal.note(obj.metadata.name, number, "ended")


class InPod(SystemHost):
    """A process that takes itself for a pod's."""

    def __init__(self, name: str, uid: str) -> None:
        self._pod = Pod(name, uid)

    def pod(self) -> Pod:
        return self._pod


class WrongClock(SystemClock):
    """A wall clock that is some seconds off."""

    def __init__(self, off: float) -> None:
        self._off = off

    def wall(self) -> float:
        return super().wall() + self._off


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ring", required=True)
    parser.add_argument("--shard", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--lease-seconds", required=True, type=float)
    parser.add_argument(
        "--by", default="", choices=("uid", "namespace"), help="by ranges, and what is hashed"
    )
    parser.add_argument("--within", nargs="*", help="by ranges: the namespaces of the objects")
    parser.add_argument("--mode", default="shard", choices=MODES)
    parser.add_argument("--pod-uid", default="")
    parser.add_argument("--clock-off", type=float, default=0.0)
    parser.add_argument("--works", type=float, default=QUICK, help="seconds of a reconcile, at most")
    parser.add_argument("--strict", action="store_true", help="strict hand-over, without a ControllerRing")
    parser.add_argument("--unwatched", action="store_true", help="nothing ends the process but itself")
    parser.add_argument("--without", help="a measure of tools/measures.py")
    parser.add_argument("--lies", action="store_true")
    return parser.parse_args(words)


def sharding(options: argparse.Namespace) -> Sharding:
    """By labels the ring selects the namespace; by ranges it has all of them, and the cache has only these."""
    here = LabelSelector(match_labels={NAME_LABEL: options.namespace})
    return Sharding(
        DeclaredRing(
            options.ring,
            RESOURCES if options.mode == "both" else None,
            None if options.by else here,
            strict_handover=options.strict,
        ),
        options.shard,
        options.namespace,
        mode=options.mode,
        delivery=Ranges(by=options.by) if options.by else "labels",
        lease=LeaseTerms(scaled(options.lease_seconds)),
    )


def lack(measure: str) -> None:
    """This process lacks it until its end."""
    sys.path.append(str(Path(__file__).parents[3] / "tools"))
    from measures import BY_NAME

    for owner, attribute, replacement in BY_NAME[measure].off:
        setattr(owner, attribute, replacement)


def main() -> None:
    options = parsed()
    logs.setup("info", "text")
    if options.without:
        lack(options.without)
    journal = Journal(options.journal, options.shard)
    if options.lies:
        asyncio.run(Lying(options.shard, journal, options.works).lie())
    world: dict[str, Any] = {}
    if options.pod_uid:
        world["host"] = InPod(options.shard, options.pod_uid)
    if options.clock_off:
        world["clock"] = WrongClock(options.clock_off)
    if options.unwatched:
        world["watchdog"] = NoWatchdog
    run(
        Manager(
            [
                Controller(
                    name="errands",
                    reconciler=Runs(options.shard, journal, options.works),
                    primary=Watch(Errand, when=when.generation_changed, sharded=True),
                    owns=[Watch(ConfigMap, when=when.labels_changed, sharded=bool(options.by))],
                    workers=8,
                )
            ],
            client=asyncio.run(load_config()),
            cache=CacheSettings(default_scope=Scope(frozenset(options.within)) if options.by else None),
            sharding=sharding(options),
            world=_world(world),
            status_pages=None,
            graceful_timeout=options.lease_seconds,
        )
    )


def _world(changes: dict[str, Any]) -> World:
    return dataclasses.replace(REAL_WORLD, **changes)


if __name__ == "__main__":
    main()
