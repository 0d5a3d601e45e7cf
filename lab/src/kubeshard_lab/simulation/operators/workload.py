"""Instances of an author's operator, and objects of its kinds that are created, changed and deleted all the time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar

from kubeshard.client.installing import install
from kubeshard.client.requests import collection_path
from kubeshard.core.builtin import Namespace
from kubeshard.core.errors import AlreadyExists, ApiError, ConfigurationError, Invalid
from kubeshard.core.kinds import Kind, split_api_version
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.core.patches import MergePatch
from kubeshard.manager.manager import Manager
from kubeshard.manifests.samples import MadeUp, ObjectTemplate
from kubeshard.runtime.pod import Pod
from kubeshard_apiserver.controllers.controllers import Controllers
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.operators.families import Families
from kubeshard_lab.simulation.operators.loading import FreshImports
from kubeshard_lab.simulation.operators.oracles import OperatorOracles
from kubeshard_lab.simulation.operators.recording import OperatorRecorder
from kubeshard_lab.simulation.operators.shape import HOME_NAMESPACE, Shape
from kubeshard_lab.simulation.operators.snapshot import Invariant
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.processes import Process, name_of
from kubeshard_lab.simulation.properties import EVENTUALLY, FORGOTTEN, QUIET
from kubeshard_lab.simulation.script import Operator, Script
from kubeshard_lab.simulation.workload import SHARDERS, Workload

T = TypeVar("T")

DELETIONS = 0.12
"""The share of deletions among the changes of objects."""


@dataclass(frozen=True)
class Author:
    """What an author has written: `load` returns the manager of a name, and `invariant` a function."""

    load: Callable[[str], Manager]
    invariant: Callable[[str], Invariant]

    def invariants(self, names: tuple[str, ...]) -> dict[str, Invariant]:
        return {name.rpartition(":")[2]: self.invariant(name) for name in names}


class _Sample:
    def __init__(self, name: str, source: ObjectTemplate | MadeUp, kind: Kind, namespace: str) -> None:
        self.name = name
        self.kind = kind
        self.namespace = namespace if kind.namespaced else None
        self._source = source

    def manifest(self, number: int) -> dict[str, Any]:
        return dict(self._source.render(self.name, number, f"word{number}"))


class OperatorWorkload(Workload):
    """The operator of the script. A process that dies is restarted under its name, a moment later."""

    oracles: OperatorOracles
    recorder: OperatorRecorder

    def __init__(
        self, world: SimulatedCluster, result: SimulationResult, script: Script, until: str, author: Author
    ) -> None:
        assert script.operator is not None
        self._operator: Operator = script.operator
        self._imports = FreshImports(self._operator.target, author.load)
        self._shape = shape = Shape.of(self._imports.manager())
        families = Families(shape.resources)
        super().__init__(world, OperatorRecorder(world, shape, families), result, script)
        always = author.invariants(self._operator.always)
        self._eventually = author.invariants(self._operator.eventually)
        self.oracles = OperatorOracles(world, result, until, shape, families, always)
        self.oracles.recorder = self.recorder
        self.names = [f"s{number}" for number in range(self._operator.instances or shape.instances)]
        self.sharders = SHARDERS["service"] if shape.has_sharders else []
        self._samples: list[_Sample] = []
        self._numbers = count(1)

    def start(self, name: str, pod: Pod | None = None) -> None:
        called = self.another(name)
        if name.startswith("x"):
            self.world.sharder(called)
            return
        process = Process(self.world, called, pod=pod, hostname=name_of(called))
        process.inside = replace(process.inside, threads=_CallsInline)
        manager = self._imports.manager()
        manager.move_to(process.client(), lambda each: self.oracles.watching(called, each))
        process.start(manager)

    async def begin(self) -> None:
        controllers = Controllers(self.world.server, caller=self.world.caller)
        self._controllers = asyncio.create_task(controllers.run(), name="controllers")  # until the loop ends
        await self._install()
        for name in [*self.names, *self.sharders]:
            self.start(name)
        await asyncio.sleep(20)
        for sample in self._samples:
            await self._create(sample)
        await asyncio.sleep(10)

    async def _install(self) -> None:
        manifests = [*self._shape.manifests, *self._operator.manifests]
        wanted = {each.get("metadata", {}).get("namespace") for each in manifests}
        for name in sorted({*self._shape.namespaces, *filter(None, wanted), "sharding-system"}):
            await self._namespace(name)
        async for _ in install(self.admin, manifests):
            pass
        await self._choose_samples(manifests)

    async def _namespace(self, name: str) -> None:
        with suppress(AlreadyExists):
            await self.admin.create(Namespace(metadata=ObjectMeta(name=name)))

    async def _choose_samples(self, manifests: list[Mapping[str, Any]]) -> None:
        definitions = {
            manifest["metadata"]["name"]: manifest
            for manifest in manifests
            if manifest["kind"] == "CustomResourceDefinition" and self._reconciles(manifest)
        }
        sources: list[tuple[ObjectTemplate | MadeUp, Mapping[str, Any]]] = []
        for text in self._operator.templates:
            template = ObjectTemplate(text)
            sources.append((template, template.render("name", 1, "word")))
        if not sources:
            made_up = map(MadeUp, definitions.values())
            sources = [(source, source.render("name", 1, "word")) for source in made_up]
        if not sources:
            kinds = dict.fromkeys(each.primary_watch.form.kind.kind for each in self._shape.controllers)
            raise ConfigurationError(
                f"there is no object to work on: give --template with a {' or '.join(kinds)}, or --apply with its "
                "definition"
            )
        for number in range(self.count):
            source, example = sources[number % len(sources)]
            group, version = split_api_version(example["apiVersion"])
            kind = await self.admin.discovery.kind(group, kind=example["kind"], version=version)
            namespace = example["metadata"].get("namespace", HOME_NAMESPACE)
            if kind.namespaced:
                await self._namespace(namespace)
            self._samples.append(_Sample(f"{kind.kind.lower()}-{number}", source, kind, namespace))

    def _reconciles(self, definition: Mapping[str, Any]) -> bool:
        names = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        return names in self._shape.resources

    async def _create(self, sample: _Sample) -> None:
        """Raises ConfigurationError if the API server does not accept such an object."""
        manifest = sample.manifest(next(self._numbers))
        metadata = {**manifest["metadata"], "name": sample.name}
        if sample.namespace:
            metadata["namespace"] = sample.namespace
        body = json.dumps({**manifest, "metadata": metadata}).encode()
        try:
            await self.admin.raw("POST", collection_path(sample.kind, sample.namespace), body)
        except AlreadyExists:
            pass  # it is being deleted
        except Invalid as error:
            raise ConfigurationError(
                f"the API server does not accept the {sample.kind.kind} to work on: {error}; give one with --template"
            ) from error

    async def churn(self) -> None:
        while True:
            await asyncio.sleep(self._calm * self._changes.uniform(0.2, 3))
            sample, deletes = self._changes.choice(self._samples), self._changes.random() < DELETIONS
            number = next(self._numbers)
            form = metadata_only(sample.kind)
            there = sample.name in {key.name for key in self.world.objects(*sample.kind.group_resource)}
            try:
                if not there:
                    await self._create(sample)
                elif deletes:
                    await self.admin.delete(form, sample.name, sample.namespace)
                else:
                    parts = sample.manifest(number)
                    for given in ("apiVersion", "kind", "metadata", "status"):
                        parts.pop(given, None)
                    note = {"metadata": {"annotations": {"simulated-change": str(number)}}}
                    await self.admin.patch(form, sample.name, sample.namespace, MergePatch({**parts, **note}))
            except ApiError as error:
                self.result.counts[f"refused changes: {type(error).__name__}"] += 1

    async def end(self) -> None:
        began = self.world.loop.time()
        names = frozenset(sample.name for sample in self._samples)
        while found := self.oracles.unsettled(names):
            if self.world.loop.time() - began > FORGOTTEN.bound:
                about = found[0].partition(" ")[0]
                self.oracles.broken(FORGOTTEN, "; ".join(found[:5]), about)
                break
            await asyncio.sleep(1)
        self.result.owned_after = self.world.loop.time() - began
        with suppress(AssertionError):  # which is judged below
            await self.world.until(self._all_hold, FORGOTTEN.bound, 1.0)
        for name, invariant in self._eventually.items():
            self.oracles.judge(EVENTUALLY, name, invariant)
        if not self.result.breaks:
            self.oracles.quiet()
            await asyncio.sleep(QUIET)
            self.oracles.judge_quiet()

    def _all_hold(self) -> bool:
        try:
            for invariant in self._eventually.values():
                invariant(self.oracles.snapshot)
        except AssertionError:
            return False
        return True


class _CallsInline:
    """A `CallRunner` whose calls have no threads: they take no virtual time."""

    def __init__(self, name: str, size: int) -> None: ...

    async def begin(self, function: Callable[[], T]) -> Future[T]:
        call: Future[T] = Future()
        try:
            call.set_result(function())
        except Exception as error:
            call.set_exception(error)
        return call

    def give_up(self, call: Future[Any]) -> None: ...
