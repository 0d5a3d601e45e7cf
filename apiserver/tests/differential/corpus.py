"""Applies the definitions and objects of a folder to the embedded API server and to a real one, and reports where the
answers differ in what a client can act on.

    make corpus ARGS="FOLDER"      # fetches nothing: the folder has YAML or JSON files, with CustomResourceDefinitions
                                   # and objects of their kinds

Each definition is created, and the documents that describe its kinds are compared. Each object is created, read,
replaced, patched and applied: as it is, and changed at random (nulls, wrong types, unknown and missing fields, odd
numbers). Compared are the code, the reason and the causes of a refusal, warnings, and the object as it is returned and
as it is stored; see `differ.py`. Conversion webhooks are replaced by the strategy None: nobody serves them here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))

import yaml
from conformance_api import APPLY, JSON_PATCH, MERGE, Answer, Api, install
from conformance_kinds import DEFINITIONS
from differ import differences, essence, servers

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.transport import TransportTimeout
from kubeshard_apiserver.testing.control_plane import ControlPlane

Object = dict[str, Any]
Path_ = tuple[str | int, ...]
_PATIENCE = 300.0
"""The seconds until a real server with many kinds serves one more."""
_AT_ONCE = 40
"""Definitions on the servers at the same time."""


@dataclass
class Corpus:
    definitions: dict[str, Object]
    """By name."""
    objects: dict[str, list[Object]]
    """By the name of their definition."""


def read(folder: Path) -> Corpus:
    """Reads all files in and below the folder. What is no definition, and of no kind that one of them defines, is left
    out; so is what is no YAML.
    """
    found = [
        obj for path in sorted(folder.rglob("*")) if path.suffix in _SUFFIXES for obj in _documents(path)
    ]
    definitions = {obj["metadata"]["name"]: obj for obj in found if _is_definition(obj)}
    of_kind = {(d["spec"]["group"], d["spec"]["names"]["kind"]): name for name, d in definitions.items()}
    objects: dict[str, list[Object]] = {}
    for obj in found:
        name = of_kind.get((str(obj.get("apiVersion")).partition("/")[0], obj.get("kind")))
        if isinstance(obj.get("metadata") or {}, dict) and name is not None:
            objects.setdefault(name, []).append(obj)
    return Corpus(definitions, objects)


def _is_definition(obj: Object) -> bool:
    try:
        spec, is_v1 = obj["spec"], obj["apiVersion"] == "apiextensions.k8s.io/v1"
        complete = (
            obj["metadata"]["name"] and spec["group"] and spec["names"]["kind"] and spec["names"]["plural"]
        )
        served = [version["name"] for version in spec["versions"] if version["served"]]
    except (KeyError, TypeError):
        return False
    return bool(obj["kind"] == "CustomResourceDefinition" and is_v1 and complete and served)


_SUFFIXES = (".yaml", ".yml", ".json")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _documents(path: Path) -> Iterator[Object]:
    try:
        # Through JSON, which has neither dates nor keys that are not strings.
        documents = json.loads(json.dumps(list(yaml.load_all(path.read_bytes(), _LOADER)), default=str))
    except (yaml.YAMLError, TypeError, ValueError):
        return
    for document in documents:
        if isinstance(document, dict):
            items = document.get("items") if document.get("kind") == "List" else [document]
            yield from (item for item in items or () if isinstance(item, dict))


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
    "1.0",
    "1e3",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
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
    return re.sub(r'"@@([^"@]+)@@"', r"\1", json.dumps(value)).encode()


@dataclass
class Report:
    definitions: int = 0
    objects: int = 0
    requests: int = 0
    differing: Counter[str] = field(default_factory=Counter)
    """What differs of definitions and objects, and how often."""
    examples: dict[str, str] = field(default_factory=dict)
    bad_definitions: set[str] = field(default_factory=set)
    bad_objects: set[tuple[str, int]] = field(default_factory=set)

    def add(self, what: str, found: Sequence[str], example: str) -> None:
        cause = f"{what}: {re.sub(r'[0-9]+', '#', '; '.join(found))[:260]}"
        self.differing[cause] += 1
        self.examples.setdefault(cause, example)


class Comparison:
    def __init__(self, ours: Api, real: Api, report: Report) -> None:
        self.apis = ours, real
        self.report = report

    async def define(self, definition: Object) -> bool:
        """Creates a definition on both servers; returns whether both have it now."""
        name = definition["metadata"]["name"]
        self.report.definitions += 1
        plain = {key: definition[key] for key in ("apiVersion", "kind", "spec")}
        meta = {key: definition["metadata"][key] for key in _KEPT if key in definition["metadata"]}
        plain["metadata"] = meta
        tried = await self._both("POST", DEFINITIONS, plain, dryRun="All")
        found = self._differences(tried)
        if found:
            self.report.bad_definitions.add(name)
            self.report.add("definition", found, _shown(name, tried))
        if any(answer.status != 201 for answer in tried):
            return False
        plain["spec"] = {**plain["spec"], "conversion": {"strategy": "None"}}
        for api in self.apis:
            await install(api, plain, _PATIENCE)
        return True

    async def undefine(self, name: str) -> None:
        for api in self.apis:
            with suppress(TransportTimeout):
                await api.delete(f"{DEFINITIONS}/{name}")

    async def try_object(self, definition: Object, obj: Object, number: int, changes: int) -> None:
        spec, version = definition["spec"], obj["apiVersion"].partition("/")[2]
        self.report.objects += 1
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
        here, kind = f"{path}/o{number}", definition["metadata"]["name"]
        for turn in range(changes + 1):
            chance = Changed(f"{kind} {number} {turn}")
            changed = chance.change(body, 1 + turn % 3) if turn else body
            steps: list[tuple[str, str, Any, str, dict[str, str]]] = [
                ("create", "POST", changed, "application/json", {}),
                (
                    "apply",
                    "PATCH",
                    chance.change(changed) if turn else body,
                    APPLY,
                    {"fieldManager": "b", "force": "true"},
                ),
                ("merge", "PATCH", _patch(chance.change(body)) if turn else {}, MERGE, {}),
                ("json patch", "PATCH", _operations(chance.change(body)), JSON_PATCH, {}),
                (
                    "status",
                    "PATCH",
                    {"status": chance.change(body).get("status")},
                    MERGE,
                    {"subresource": "status"},
                ),
            ]
            for what, method, sent, content_type, query in steps if turn else steps[:2]:
                at = path if method == "POST" else here
                options = dict(query)
                if options.pop("subresource", ""):
                    at += "/status"
                answers = await self._both(method, at, sent, content_type, **options)
                stored = await self._both("GET", here)
                found = self._differences(answers) or self._differences(stored)
                if found:
                    self.report.bad_objects.add((kind, number))
                    self.report.add(
                        f"object {what}",
                        found,
                        f"{_shown(kind, answers)}\n      sent: {encoded(sent).decode()[:1500]}",
                    )
                    break
            await self._both("DELETE", here)

    async def published(self, definitions: Sequence[Object]) -> None:
        """Compares what the documents say of the kinds. On the real server they follow a moment later."""
        wanted = {
            (d["spec"]["group"], v["name"], d["spec"]["names"]["kind"]): d["metadata"]["name"]
            for d in definitions
            for v in d["spec"]["versions"]
            if v.get("served")
        }
        names = {
            ".".join((*reversed(group.split(".")), version, kind)): name
            for (group, version, kind), name in wanted.items()
        }
        older: list[Any] = []
        for api in self.apis:
            while set(names) - set(said := (await api.get("/openapi/v2"))["definitions"]):  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            older.append(said)
        newer: list[dict[str, Any]] = [{}, {}]
        for group, version in sorted({(group, version) for group, version, _ in wanted}):
            for api, schemas in zip(self.apis, newer, strict=True):
                at = f"/openapi/v3/apis/{group}/{version}"
                here = {name for name, key in zip(names, wanted, strict=True) if key[:2] == (group, version)}
                while here - set(said := ((await api.get(at)).body or _EMPTY)["components"]["schemas"]):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
                schemas |= said
        for what, (ours, real) in (("v2", older), ("v3", newer)):
            for name, definition in names.items():
                if found := differences(_undescribed(ours[name]), _undescribed(real[name])):
                    self.report.bad_definitions.add(definition)
                    self.report.add(f"published {what}", found, f"{definition}: {found[:5]}")

    async def _both(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
    ) -> list[Answer]:
        self.report.requests += 1
        data = None if body is None else encoded(body)
        return [await api.call(method, path, data, content_type=content_type, **query) for api in self.apis]

    def _differences(self, answers: Sequence[Answer]) -> list[str]:
        found = differences(*(_as_in_go(essence(answer, "")) for answer in answers))
        told, expected = (sorted(answer.warnings) for answer in answers)
        return found or ([] if told == expected else [f"warnings: {told[:3]} != {expected[:3]}"])


_KEPT = ("name", "labels", "annotations")
_EMPTY: dict[str, Any] = {"components": {"schemas": {}}}


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


async def compare(ours: Api, real: Api, corpus: Corpus, report: Report, *, changes: int, most: int) -> None:
    """Tries each definition, and at most so many objects of each, as they are and with so many random changes."""
    comparison = Comparison(ours, real, report)
    for api in (ours, real):
        await api.create("/api/v1/namespaces", {"metadata": {"name": "corpus"}})
    names = sorted(corpus.definitions)
    for first in range(0, len(names), _AT_ONCE):
        chunk = names[first : first + _AT_ONCE]
        places = asyncio.Semaphore(_LANES)

        async def define(name: str, places: asyncio.Semaphore = places) -> bool:
            async with places:
                return await comparison.define(corpus.definitions[name])

        made = await asyncio.gather(*map(define, chunk))
        defined = [name for name, is_there in zip(chunk, made, strict=True) if is_there]
        async with asyncio.TaskGroup() as group:
            for lane in range(_LANES):
                group.create_task(_lane(comparison, corpus, defined[lane::_LANES], changes, most))
        await comparison.published([corpus.definitions[name] for name in defined])
        await asyncio.gather(*map(comparison.undefine, defined))
        print(f"{first + len(chunk)} definitions: {len(report.bad_definitions)} differ", end="; ", flush=True)
        print(f"{report.objects} objects: {len(report.bad_objects)} differ", flush=True)


_LANES = 4


async def _lane(
    comparison: Comparison, corpus: Corpus, names: Sequence[str], changes: int, most: int
) -> None:
    for name in names:
        definition = corpus.definitions[name]
        served = {version["name"] for version in definition["spec"]["versions"] if version.get("served")}
        objects = [
            obj for obj in corpus.objects.get(name, ()) if obj["apiVersion"].partition("/")[2] in served
        ]
        for number, obj in enumerate(objects[:most]):
            await comparison.try_object(definition, obj, number, changes)


async def _main(options: argparse.Namespace) -> int:
    corpus, report = read(options.folder), Report()
    if not corpus.definitions:
        raise ConfigurationError(f"{options.folder}: no CustomResourceDefinition in its YAML and JSON files")
    with ControlPlane() as control_plane:
        async with servers(control_plane) as (ours, real):
            await compare(ours, real, corpus, report, changes=options.changes, most=options.objects)
    return summary(report, options)


def summary(report: Report, options: argparse.Namespace) -> int:
    for cause, count in report.differing.most_common(options.show):
        print(f"{count:5} {cause}")
        if options.examples:
            print(f"      {report.examples[cause]}")
    print(f"{len(report.bad_definitions)} of {report.definitions} definitions differ", end="; ")
    print(f"{len(report.bad_objects)} of {report.objects} objects; {report.requests} requests to each server")
    return bool(report.bad_definitions or len(report.bad_objects) > report.objects / 1000)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Definitions and objects of a folder on the embedded API server and a real one."
    )
    parser.add_argument("folder", type=Path, help="a folder with YAML and JSON files")
    parser.add_argument("--changes", type=int, default=4, help="how often each object is changed at random")
    parser.add_argument("--objects", type=int, default=20, help="of each definition at most")
    parser.add_argument("--show", type=int, default=60, help="how many kinds of differences to show")
    parser.add_argument("--examples", action="store_true", help="with a request and both answers")
    return parser


def main() -> int:
    try:
        return asyncio.run(_main(arguments().parse_args()))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
