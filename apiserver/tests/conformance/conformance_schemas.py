"""Kinds with a schema that the test case defines."""

from __future__ import annotations

from typing import Any

from conformance_api import Answer, Api, install, until
from conformance_kinds import DEFINITIONS


def defined(group: str, spec: Any, **version: Any) -> dict[str, Any]:
    """Returns a CustomResourceDefinition of the kind Thing whose `spec` has this schema."""
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def fields(**properties: Any) -> dict[str, Any]:
    """Returns the schema of an object with these fields."""
    return {"type": "object", "properties": properties}


class Things:
    """Objects of the kind, in the namespace of the test case."""

    def __init__(self, api: Api, group: str, ns: str) -> None:
        self.api = api
        self.group = group
        self.definition = f"{DEFINITIONS}/things.{group}"
        self.path = f"/apis/{group}/v1/namespaces/{ns}/things"

    def body(self, spec: Any, name: str = "a", **more: Any) -> dict[str, Any]:
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Thing",
            "metadata": {"name": name},
            "spec": spec,
            **more,
        }

    async def define(self, spec: Any, **version: Any) -> None:
        await install(self.api, defined(self.group, spec, **version))

    async def defining(self, spec: Any, **version: Any) -> Answer:
        """Sends the definition without waiting for it, to test rejections."""
        return await self.api.create(DEFINITIONS, defined(self.group, spec, **version))

    async def redefine(self, spec: Any, **version: Any) -> None:
        """Replaces the schema and waits until it is in force: the server takes a moment."""
        marked = {**spec, "properties": {**spec["properties"], "marked": {"type": "string"}}}
        versions = defined(self.group, marked, **version)["spec"]["versions"]
        changed = await self.api.merge(self.definition, {"spec": {"versions": versions}})
        assert changed.status == 200, changed.text

        async def holds() -> bool:
            tried = await self.create({"marked": "x"}, "tried", dryRun="All", fieldValidation="Strict")
            return tried.status != 400

        await until(holds)

    async def create(self, spec: Any, name: str = "a", **query: Any) -> Answer:
        return await self.api.create(self.path, self.body(spec, name), **query)

    async def merge(self, spec: Any, name: str = "a", **query: Any) -> Answer:
        return await self.api.merge(f"{self.path}/{name}", {"spec": spec}, **query)


_schemas: dict[str, Any] = {}


async def shared(api: Api, name: str, ns: str, spec: Any, **version: Any) -> Things:
    """Things of a definition that several test cases share: the real server delays the first object of a new kind. A
    name has one schema, in all files of the suite.
    """
    assert _schemas.setdefault(name, spec) == spec, f"{name}: another test case has a definition of this name"
    things = Things(api, f"{name}.example.com", ns)
    await things.define(spec, **version)
    return things
