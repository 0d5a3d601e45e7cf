"""Applies the definitions and objects of a folder to the embedded API server and to a real one, and reports where the
answers differ in what a client can act on.

    make corpus ARGS="FOLDER"      # fetches nothing: the folder has YAML or JSON files, with CustomResourceDefinitions
                                   # and objects of their kinds

Each definition is created, and the documents that describe its kinds are compared. Each object is created, read,
replaced, patched and applied: as it is, and changed at random (nulls, wrong types, unknown and missing fields, odd
numbers). Compared are the code, the reason and the causes of a refusal, warnings, and the object as it is returned and
as it is stored; see `differ.py`. Conversion webhooks are replaced by the strategy None: nobody serves them here.

The definitions go in batches to a fresh pair of servers each. A request that fails or takes too long leaves out its
case, which the summary names. With `--journal FILE` each finished definition is written down, and a later run with the
same file goes on after them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))

import yaml
from conformance_api import APPLY, JSON_PATCH, MERGE, Answer, Api
from conformance_kinds import DEFINITIONS
from differ import differences, essence, servers

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.transport import TransportError
from kubeshard_apiserver.testing.control_plane import ControlPlane

Object = dict[str, Any]
T = TypeVar("T")
Path_ = tuple[str | int, ...]
_PATIENCE = 120.0
"""The seconds until a real server with many kinds serves one more, or publishes one more schema."""
_POLL = 0.5
_BATCH = 40
"""Definitions on one pair of servers."""
_LANES = 4
_FAILURES = (TransportError, TimeoutError)
"""What leaves a case out: no answer, or none in time."""


@dataclass
class Corpus:
    definitions: dict[str, Object]
    """By name."""
    objects: dict[str, list[Object]]
    """By the name of their definition: those of a version that is served, at most so many."""
    left: Counter[str] = field(default_factory=Counter)
    """What is not compared, and why."""


def read(folder: Path, most: int) -> Corpus:
    """Reads all files in and below the folder. What is no definition, and of no kind that one of them defines, is left
    out; so is what is no YAML.
    """
    corpus, found = Corpus({}, {}), []
    for path in sorted(folder.rglob("*")):
        if path.suffix in _SUFFIXES:
            documents = _documents(path)
            corpus.left["files that are no YAML, as templates"] += documents is None
            found += documents or []
    for obj in filter(_is_definition, found):
        corpus.left["further definitions of the same name"] += obj["metadata"]["name"] in corpus.definitions
        corpus.definitions.setdefault(obj["metadata"]["name"], obj)
    of_kind = {
        (d["spec"]["group"], d["spec"]["names"]["kind"]): name for name, d in corpus.definitions.items()
    }
    for obj in found:
        group, _, version = str(obj.get("apiVersion")).partition("/")
        name = of_kind.get((group, str(obj.get("kind"))))
        if name is None or not isinstance(obj.get("metadata") or {}, dict):
            continue
        objects = corpus.objects.setdefault(name, [])
        if version not in _served(corpus.definitions[name]):
            corpus.left["objects of a version that is not served"] += 1
        elif len(objects) >= most:
            corpus.left[f"objects of a definition that has {most} already"] += 1
        else:
            objects.append(obj)
    return corpus


def _served(definition: Object) -> list[str]:
    return [version["name"] for version in definition["spec"]["versions"] if version.get("served")]


def _is_definition(obj: Object) -> bool:
    try:
        spec, is_v1 = obj["spec"], obj["apiVersion"] == "apiextensions.k8s.io/v1"
        complete = (
            obj["metadata"]["name"] and spec["group"] and spec["names"]["kind"] and spec["names"]["plural"]
        )
        served = _served(obj)
    except (KeyError, TypeError, AttributeError):
        return False
    return bool(obj["kind"] == "CustomResourceDefinition" and is_v1 and complete and served)


_SUFFIXES = (".yaml", ".yml", ".json")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _documents(path: Path) -> list[Object] | None:
    """Returns None for what is no YAML."""
    try:
        if path.suffix == ".json":
            documents = [json.loads(path.read_bytes())]
        else:
            # Through JSON, which has neither dates nor keys that are not strings.
            documents = json.loads(json.dumps(list(yaml.load_all(path.read_bytes(), _LOADER)), default=str))
    except (yaml.YAMLError, TypeError, ValueError):
        return None
    found: list[Object] = []
    for document in documents:
        if isinstance(document, dict):
            items = document.get("items") if document.get("kind") == "List" else [document]
            found += (item for item in items or () if isinstance(item, dict))
    return found


class Changed:
    """Random changes of one object. Numbers are written as `number` gives them, which JSON cannot."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def change(self, obj: Object, times: int = 1) -> Object:
        obj = deepcopy(obj)
        for _ in range(times):
            paths = [path for path in _paths(obj) if path[0] not in ("apiVersion", "kind", "metadata")]
            if not paths:
                break
            path = self._random.choice(paths)
            self._random.choice((self._replace, self._replace, self._add, self._drop))(obj, path)
        return obj

    def number(self) -> str:
        return self._random.choice(_NUMBERS)

    def _replace(self, obj: Object, path: Path_) -> None:
        parent = _at(obj, path[:-1])
        parent[path[-1]] = self._one_of(None, None, *_VALUES, f"@@{self.number()}@@")

    def _add(self, obj: Object, path: Path_) -> None:
        value = _at(obj, path)
        if isinstance(value, dict):
            value[self._one_of("unknown", "x-y", "apiVersion", "metadata")] = self._one_of(*_VALUES)
        elif isinstance(value, list) and value:
            value.append(self._one_of(value[0], None, {}, "a"))
        else:
            self._replace(obj, path)

    def _one_of(self, *values: Any) -> Any:
        return deepcopy(self._random.choice(values))

    def _drop(self, obj: Object, path: Path_) -> None:
        del _at(obj, path[:-1])[path[-1]]


_VALUES: tuple[Any, ...] = (
    "",
    "a",
    "A_b <",
    True,
    0,
    -1,
    3,
    1.5,
    [],
    {},
    [None],
    {"a": None},
    ["a", "a"],
    "5m",
    "x" * 300,
)
_NUMBERS = (
    "-0",
    "-0.0",
    "1.0",
    "1e3",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9007199254740993",
    "1e40",
    "-1.0e-2",
    "0.0",
)


def _paths(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(inner, (*path, key))


def _at(value: Any, path: Path_) -> Any:
    for key in path:
        value = value[key]
    return value


def encoded(value: Any) -> bytes:
    return re.sub(r'"@@([-+.0-9e]+)@@"', r"\1", json.dumps(value)).encode()


@dataclass
class Outcome:
    """What was compared of one definition."""

    name: str
    objects: int = 0
    changed: int = 0
    """Changed objects."""
    requests: int = 0
    differs: bool = False
    differing: set[int] = field(default_factory=set)
    """The numbers of objects."""
    found: list[tuple[str, str]] = field(default_factory=list)
    """Each difference, and an example."""
    left: list[str] = field(default_factory=list)
    """What could not be compared, and why."""

    def add(self, what: str, found: Sequence[str], example: str) -> None:
        self.found.append((f"{what}: {re.sub(r'[0-9]+', '#', '; '.join(found))[:260]}", example))


class Journal:
    """The outcomes of finished definitions, also of earlier runs with the same file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        known = [Outcome(**{**line, "differing": set(line["differing"])}) for line in map(json.loads, lines)]
        self.outcomes = {outcome.name: outcome for outcome in known}

    def add(self, outcome: Outcome) -> None:
        self.outcomes[outcome.name] = outcome
        if self._path:
            with self._path.open("a") as file:
                file.write(json.dumps({**asdict(outcome), "differing": sorted(outcome.differing)}) + "\n")


class Comparison:
    """Compares one batch of definitions and their objects."""

    def __init__(self, ours: Api, real: Api, corpus: Corpus, names: Sequence[str]) -> None:
        self.apis = ours, real
        self.corpus = corpus
        self.outcomes = {name: Outcome(name) for name in names}

    async def compare(self, changes: int) -> None:
        for api in self.apis:
            await api.create("/api/v1/namespaces", {"metadata": {"name": "corpus"}})
        defined = await self._each(self.outcomes, self._define)
        there = [name for name, is_there in zip(self.outcomes, defined, strict=True) if is_there]

        async def objects(name: str) -> None:
            for number, obj in enumerate(self.corpus.objects.get(name, ())):
                await self._try_object(self.outcomes[name], obj, number, changes)

        await self._each(there, objects)
        await self.compare_published([self.corpus.definitions[name] for name in there])

    async def _each(self, names: Iterable[str], do: Callable[[str], Awaitable[T]]) -> list[T | None]:
        """A failure is noted, and does not end the others."""
        places = asyncio.Semaphore(_LANES)

        async def one(name: str) -> T | None:
            async with places:
                try:
                    return await do(name)
                except _FAILURES as error:
                    self.outcomes[name].left.append(f"the definition or its objects: {error!r}"[:300])
            return None

        return await asyncio.gather(*map(one, names))

    async def _define(self, name: str) -> bool:
        """Creates a definition on both servers; returns whether both have it now."""
        outcome, definition = self.outcomes[name], self.corpus.definitions[name]
        plain = {key: definition[key] for key in ("apiVersion", "kind", "spec")}
        meta = {key: definition["metadata"][key] for key in _KEPT if key in definition["metadata"]}
        plain["metadata"] = meta
        tried = await self._both(outcome, "POST", DEFINITIONS, plain, dryRun="All")
        found = self._differences(tried)
        if found:
            outcome.differs = True
            outcome.add("definition", found, _shown(name, tried))
        if any(answer.status != 201 for answer in tried):
            return False
        plain["spec"] = {**plain["spec"], "conversion": {"strategy": "None"}}
        await self._both(outcome, "POST", DEFINITIONS, plain)
        path = f"/apis/{plain['spec']['group']}/{_served(plain)[0]}/{plain['spec']['names']['plural']}"

        async def served() -> bool:
            return all([(await api.get(path, limit=1)).status == 200 for api in self.apis])

        async def settled() -> bool:
            judged[:] = [_names(await api.get(f"{DEFINITIONS}/{name}")) for api in self.apis]
            return all(judged)

        judged: list[str] = []
        await _until(settled)
        if judged[0] != judged[1]:
            outcome.differs = True
            outcome.add("names of the definition", [" != ".join(judged)], name)
        if judged != ["True", "True"]:
            return False
        await _until(served)
        return True

    async def _try_object(self, outcome: Outcome, obj: Object, number: int, changes: int) -> None:
        spec, version = self.corpus.definitions[outcome.name]["spec"], obj["apiVersion"].partition("/")[2]
        outcome.objects += 1
        base = f"/apis/{spec['group']}/{version}"
        path = f"{base}/namespaces/corpus/{spec['names']['plural']}"
        if spec["scope"] == "Cluster":
            path = f"{base}/{spec['names']['plural']}"
        meta = {
            key: value
            for key, value in (obj.get("metadata") or {}).items()
            if key in ("labels", "annotations")
        }
        body = {**obj, "metadata": {**meta, "name": f"o{number}"}}
        for turn in range(changes + 1):
            chance = Changed(f"{outcome.name} {number} {turn}")
            outcome.changed += turn > 0
            try:
                await self._turn(outcome, path, body, number, turn, chance)
            except _FAILURES as error:
                outcome.left.append(f"object {number}, change {turn}: {error!r}"[:300])
                await self._forget(f"{path}/o{number}")

    async def _turn(
        self, outcome: Outcome, path: str, body: Object, number: int, turn: int, chance: Changed
    ) -> None:
        here, accepted = f"{path}/o{number}", False
        changed = chance.change(body, 1 + turn % 3) if turn else body
        applied = chance.change(changed) if turn else body
        status = {"status": chance.change(body).get("status")}
        steps: list[tuple[str, str, str, Any, str, dict[str, str]]] = [
            ("create", "POST", path, changed, "application/json", {}),
            ("apply", "PATCH", here, applied, APPLY, {"fieldManager": "b", "force": "true"}),
            ("merge", "PATCH", here, _patch(chance.change(body)), MERGE, {}),
            ("json patch", "PATCH", here, _operations(chance.change(body)), JSON_PATCH, {}),
            ("status", "PATCH", f"{here}/status", status, MERGE, {}),
        ]
        for what, method, at, sent, content_type, query in steps if turn else steps[:2]:
            answers = await self._both(outcome, method, at, sent, content_type, **query)
            accepted |= any(answer.status < 300 for answer in answers)
            found = self._differences(answers)
            if not found and answers[0].status < 300 and what in _READ:
                found = self._differences(await self._both(outcome, "GET", here))
            if found:
                outcome.differing.add(number)
                shown = f"{_shown(outcome.name, answers)}\n      sent: {encoded(sent).decode()[:1500]}"
                outcome.add(f"object {what}", found, shown)
                break
        if accepted:
            await self._both(outcome, "DELETE", here)

    async def _forget(self, path: str) -> None:
        for api in self.apis:
            try:
                await api.delete(path)
            except _FAILURES:
                continue

    async def compare_published(self, definitions: Sequence[Object]) -> None:
        """Compares what the documents say of the kinds. On the real server they follow a moment later."""
        kinds = {
            (d["spec"]["group"], version, d["spec"]["names"]["kind"]): d["metadata"]["name"]
            for d in definitions
            for version in _served(d)
        }
        for document, at, names in _documents_of(kinds):
            ours, real = [await _schemas(api, at, names) for api in self.apis]
            for schema, name in names.items():
                if schema not in ours or schema not in real:
                    lacking = " and ".join(
                        who
                        for who, its in (("the embedded server", ours), ("the real server", real))
                        if schema not in its
                    )
                    self.outcomes[name].left.append(
                        f"published {document}: {schema} is not in that of {lacking}"
                    )
                elif found := differences(_undescribed(ours[schema]), _undescribed(real[schema])):
                    self.outcomes[name].differs = True
                    self.outcomes[name].add(f"published {document}", found, f"{name}: {found[:5]}")

    async def _both(
        self,
        outcome: Outcome,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        **query: str,
    ) -> list[Answer]:
        outcome.requests += 1
        data = None if body is None else encoded(body)
        return [await api.call(method, path, data, content_type=content_type, **query) for api in self.apis]

    def _differences(self, answers: Sequence[Answer]) -> list[str]:
        found = differences(*(_as_in_go(essence(answer, "")) for answer in answers))
        told, expected = (sorted(answer.warnings) for answer in answers)
        return found or ([] if told == expected else [f"warnings: {told[:3]} != {expected[:3]}"])


def _documents_of(
    kinds: Mapping[tuple[str, str, str], str],
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yields the version and path of each document, and the definitions by the schemas that it has to contain."""

    def name(group: str, version: str, kind: str) -> str:
        return ".".join((*reversed(group.split(".")), version, kind))

    for group, version in sorted({key[:2] for key in kinds}):
        here = {name(*key): of for key, of in kinds.items() if key[:2] == (group, version)}
        yield "v3", f"/openapi/v3/apis/{group}/{version}", here
    yield "v2", "/openapi/v2", {name(*key): of for key, of in kinds.items()}


async def _schemas(api: Api, at: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Waits until all are there, or no further one comes."""
    found: dict[str, Any] = {}
    last = time.monotonic()
    while set(names) - set(found) and time.monotonic() - last < _PATIENCE:
        try:
            body = (await api.get(at)).body or {}
        except _FAILURES:
            body = {}
        schemas = body.get("components", {}).get("schemas") or body.get("definitions") or {}
        if further := {name: schemas[name] for name in names if name in schemas and name not in found}:
            found |= further
            last = time.monotonic()
        if set(names) - set(found):
            await asyncio.sleep(_POLL)
    return found


def _names(answer: Answer) -> str:
    """Whether the definition has the names that it wants: another one of the group may have one of them."""
    conditions = ((answer.body or {}).get("status") or {}).get("conditions") or []
    return next((each["status"] for each in conditions if each["type"] == "NamesAccepted"), "")


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not await holds():  # noqa: ASYNC110 - what changes is in another process
            await asyncio.sleep(_POLL)


_READ = ("create", "apply", "json patch", "status")
"""What is read after it. The rest answers as these do."""
_KEPT = ("name", "labels", "annotations")


def _patch(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}


def _operations(obj: Object) -> list[Object]:
    return [{"op": "add", "path": f"/{name}", "value": value} for name, value in _patch(obj).items()]


def _as_in_go(value: Any) -> Any:
    """The value with numbers beyond int64 as floats: Python would compare their digits."""
    if isinstance(value, dict):
        return {name: _as_in_go(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_in_go(inner) for inner in value]
    return float(value) if isinstance(value, int) and abs(value) >= 1 << 63 else value


def _undescribed(schema: Any) -> Any:
    """The schema without the descriptions of the fields that every object has, and without the order of lists."""
    if isinstance(schema, dict):
        schema = {
            word: _undescribed(inner)
            for word, inner in schema.items()
            if word != "description" or not isinstance(inner, str)
        }
        if isinstance(schema.get("required"), list):
            schema["required"] = sorted(schema["required"])
        return schema
    return [_undescribed(inner) for inner in schema] if isinstance(schema, list) else schema


def _shown(name: str, answers: Sequence[Answer]) -> str:
    ours, real = answers
    lines = (f"ours: {ours.status} {ours.text[:1500]}", f"real: {real.status} {real.text[:1500]}")
    return f"{name}\n      " + "\n      ".join(lines)


async def compare(corpus: Corpus, journal: Journal, changes: int) -> None:
    """Tries each definition that is not in the journal, and its objects as they are and with so many random changes."""
    began = time.monotonic()
    by_group = sorted(corpus.definitions, key=lambda name: name.split(".")[::-1])
    names = [name for name in by_group if name not in journal.outcomes]
    for first in range(0, len(names), _BATCH):
        with ControlPlane() as control_plane:
            async with servers(control_plane) as apis:
                comparison = Comparison(*apis, corpus, names[first : first + _BATCH])
                await comparison.compare(changes)
        for outcome in comparison.outcomes.values():
            journal.add(outcome)
        left = len(names) - first - len(comparison.outcomes)
        print(f"{time.monotonic() - began:.0f} s, {left} definitions left: {_totals(journal)}", flush=True)


def _totals(journal: Journal) -> str:
    outcomes = journal.outcomes.values()
    definitions = f"{sum(outcome.differs for outcome in outcomes)} of {len(outcomes)} definitions differ"
    differing, objects = (
        sum(len(outcome.differing) for outcome in outcomes),
        sum(o.objects for o in outcomes),
    )
    changed, requests = sum(o.changed for o in outcomes), sum(o.requests for o in outcomes)
    return f"{definitions}; {differing} of {objects} objects, changed {changed} times; {requests} requests to each"


async def _main(options: argparse.Namespace) -> int:
    corpus, journal = read(options.folder, options.objects), Journal(options.journal)
    if not corpus.definitions:
        raise ConfigurationError(f"{options.folder}: no CustomResourceDefinition in its YAML and JSON files")
    await compare(corpus, journal, options.changes)
    return summary(corpus, journal, options)


def summary(corpus: Corpus, journal: Journal, options: argparse.Namespace) -> int:
    """Prints what differs and what was left out. Returns 1 if more differs than may, or a case was left out."""
    outcomes = journal.outcomes.values()
    examples = {cause: example for outcome in outcomes for cause, example in outcome.found}
    differing = Counter(cause for outcome in outcomes for cause, _ in outcome.found)
    for cause, count in differing.most_common(options.show):
        print(f"{count:5} {cause}")
        if options.examples:
            print(f"      {examples[cause]}")
    failed = [f"{outcome.name}: {why}" for outcome in outcomes for why in outcome.left]
    for why, count in corpus.left.items():
        if count:
            print(f"not compared: {count} {why}")
    for why in failed:
        print(f"not compared: {why}")
    print(_totals(journal))
    bad, of = sum(len(outcome.differing) for outcome in outcomes), sum(o.objects for o in outcomes)
    return bool(failed or any(outcome.differs for outcome in outcomes) or bad > of / 1000)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Definitions and objects of a folder on the embedded API server and a real one."
    )
    parser.add_argument("folder", type=Path, help="a folder with YAML and JSON files")
    parser.add_argument("--changes", type=int, default=4, help="how often each object is changed at random")
    parser.add_argument("--objects", type=int, default=20, help="of each definition at most")
    parser.add_argument("--show", type=int, default=60, help="how many kinds of differences to show")
    parser.add_argument("--examples", action="store_true", help="with a request and both answers")
    parser.add_argument(
        "--journal", type=Path, help="a file of finished definitions, which a later run leaves out"
    )
    return parser


def main() -> int:
    try:
        return asyncio.run(_main(arguments().parse_args()))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
