"""An API server in memory, as far as the reconcilers of the examples need one, and the context of one run.

Objects are JSON; merge and JSON patches, resourceVersion, generation and a few defaults work as on the real server.
`writes` lists the write requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from kubeshard.controller import Context
from kubeshard.controller.contested import Contests
from kubeshard.controller.merging import Rewrites
from kubeshard.controller.run import from_cache
from kubeshard.core import (
    AlreadyExists,
    Conflict,
    JsonPatch,
    KubeObject,
    MergePatch,
    NotFound,
    decode,
    to_dict,
)
from kubeshard.core.objects import Key, form_of
from kubeshard.core.patches import apply_merge_patch
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.transport import HttpResponse
from kubeshard_apiserver.json_patch import apply_json_patch
from kubeshard_lab.virtual_time import VirtualClock


class LittleServer:
    """Takes the place of the client. `defaults`: what the server adds to created objects, by kind. `refuses`: the error
    with which it responds to every write, by kind.
    """

    def __init__(self, defaults: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.writes: list[tuple[str, str, dict[str, Any]]] = []
        self.refuses: dict[str, Exception] = {}
        self._defaults = defaults or {}
        self._version = 0

    def has(self, obj: KubeObject | dict[str, Any]) -> dict[str, Any]:
        """Stores an object as another user."""
        body = to_dict(obj) if isinstance(obj, KubeObject) else obj
        return self._store(apply_merge_patch(self._defaults.get(body["kind"], {}), body), {})

    def change(self, cls: type[KubeObject], name: str, namespace: str, patch: Mapping[str, Any]) -> None:
        """Applies another user's merge patch."""
        old = self.objects[cls.KIND.kind, namespace, name]
        self._store(apply_merge_patch(old, patch), old)

    def find(self, cls: type[Any], name: str, namespace: str = "") -> Any:
        body = self.objects.get((cls.KIND.kind, namespace, name))
        return None if body is None else decode(form_of(cls), json.dumps(body).encode())

    def standing(self, obj: KubeObject, *, shown: bool = False) -> None:
        """As of a client without a fence."""

    async def create(self, obj: Any) -> Any:
        kind, meta = obj.KIND.kind, obj.metadata
        self._write("create", kind, to_dict(obj))
        if (kind, meta.namespace, meta.name) in self.objects:
            raise AlreadyExists("it exists", code=409)
        self.has(obj)
        return self.find(type(obj), meta.name, meta.namespace)

    async def patch(
        self, cls: type[Any], name: str, namespace: str, patch: MergePatch | JsonPatch, **options: Any
    ) -> Any:
        body = dict(patch.body) if isinstance(patch, MergePatch) else {"ops": list(patch.ops)}
        self._write("patch", cls.KIND.kind, body)
        old = self.objects.get((cls.KIND.kind, namespace, name))
        if old is None:
            raise NotFound("it is gone", code=404)
        apply = apply_merge_patch if isinstance(patch, MergePatch) else apply_json_patch
        new = apply(old, patch.body if isinstance(patch, MergePatch) else patch.ops)
        if new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise Conflict("it changed", code=409)
        self._store(new, old)
        return self.find(cls, name, namespace)

    async def raw(self, method: str, path: str) -> HttpResponse:
        plural, name = path.split("/")[-2:]
        namespace = path.split("/namespaces/")[1].split("/")[0]
        (body,) = (
            found
            for (kind, *place), found in self.objects.items()
            if place == [namespace, name] and plural in (f"{kind.lower()}s", f"{kind.lower()}es")
        )
        return HttpResponse(200, {}, json.dumps(body).encode())

    def _write(self, verb: str, kind: str, body: dict[str, Any]) -> None:
        if kind in self.refuses:
            raise self.refuses[kind]
        self.writes.append((verb, kind, body))

    def _store(self, new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
        self._version += 1
        meta = new["metadata"]
        meta["resourceVersion"] = str(self._version)
        meta.setdefault("uid", f"uid-{self._version}")
        if new["kind"] != "ConfigMap" and new.get("spec") != old.get("spec"):
            meta["generation"] = meta.get("generation", 0) + 1
        new = json.loads(json.dumps(new))
        self.objects[new["kind"], meta.get("namespace", ""), meta["name"]] = new
        return new


class Run:
    """The part of a `Context` that the reconcilers use; its cache is never behind."""

    fresh = staticmethod(from_cache)

    def __init__(self, server: LittleServer, namespace: str) -> None:
        self.client = server
        self.log = get_logger("test")
        self.clock = self
        self._run = self  # the state of its only run
        self.rewrites = Rewrites()
        self.contests = Contests(VirtualClock())
        self.events: list[tuple[str, str, str]] = []
        self.unreadable: dict[type, Exception] = {}
        self._namespace = namespace
        self.key = Key(namespace, "")

    @property
    def context(self) -> Context:
        return cast(Context, self)

    def wall(self) -> float:
        return 1767323045.25

    async def get(
        self, cls: type[Any], name: str, namespace: str | None = None, *, ours: bool = False
    ) -> Any:
        if cls in self.unreadable:
            raise self.unreadable[cls]
        namespace = self._namespace if namespace is None else namespace
        return self.client.find(cls, name, namespace if cls.KIND.namespaced else "")

    def just_read(self, *_: object) -> None:
        """It has no reads to remember."""

    def may_be_first(self, *_: object) -> bool:
        return False

    def event(self, regarding: KubeObject, type: str, reason: str, message: str, *, action: str = "") -> None:
        self.events.append((type, reason, message))
