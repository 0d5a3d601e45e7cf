"""A tiny API server behind a `Transport`, with just enough of get, list, create, update, patch and delete for the
sharder's logic.

Every write increments one version; resourceVersion and uid in a body are preconditions, as on the real server. `faults`
may respond to a request instead, or do something before the response.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubeshard.client import Client, ClusterConfig
from kubeshard.core import Selector
from kubeshard.core.errors import Invalid
from kubeshard.core.patches import apply_merge_patch
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream
from kubeshard_apiserver.json_patch import apply_json_patch
from kubeshard_lab.simulation.processes import Answered
from kubeshard_lab.virtual_world import virtual_world

Fault = Callable[[HttpRequest], HttpResponse | None]

RESOURCES = {
    "/api/v1": [
        ("secrets", "Secret", True),
        ("configmaps", "ConfigMap", True),
        ("namespaces", "Namespace", False),
    ],
    "/apis/things.example/v1": [("clusters", "Cluster", False), ("things", "Thing", True)],
}


class SmallApi:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.requests: list[tuple[str, str, Any]] = []
        self.faults: list[Fault] = []

    def client(self, clock: Clock) -> Client:
        return Client(ClusterConfig("http://small"), transport=self, world=virtual_world(clock=clock))

    # What the test calls

    def put(self, collection: str, name: str, **fields: Any) -> dict[str, Any]:
        """Stores an object as another user, and returns it. `labels` and `owner` go into the metadata."""
        metadata: dict[str, Any] = {"name": name, "uid": fields.pop("uid", f"uid-{name}")}
        parts = collection.split("/")
        if "namespaces" in parts[:-1]:
            metadata["namespace"] = parts[parts.index("namespaces") + 1]
        for key in ("labels", "ownerReferences"):
            if value := fields.pop(key, None):
                metadata[key] = value
        return self._store(f"{collection}/{name}", {"metadata": metadata, **fields})

    def labels(self, path: str) -> dict[str, str]:
        return self.objects[path]["metadata"].get("labels", {})

    def relabel(self, path: str, **labels: str | None) -> None:
        self._store(path, apply_merge_patch(self.objects[path], {"metadata": {"labels": labels}}))

    def writes(self) -> list[tuple[str, str, Any]]:
        """Returns the requests that changed objects."""
        return [r for r in self.requests if r[0] != "GET" and not r[1].startswith("/apis/authorization")]

    # What the transport calls

    async def request(self, request: HttpRequest) -> HttpResponse:
        path = urlsplit(request.target).path
        query = {key: values[0] for key, values in parse_qs(urlsplit(request.target).query).items()}
        body = json.loads(request.body) if request.body else None
        self.requests.append((request.method, path, body))
        for fault in self.faults:
            if (answer := fault(request)) is not None:
                return answer
        match request.method:
            case "GET":
                return self._get(path, query)
            case "POST" if path.startswith("/apis/authorization"):
                kind = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
                return ok({**kind, "status": {"allowed": True}}, 201)
            case "POST":
                return self._create(path, body)
            case "DELETE":
                return self._delete(path, body or {})
            case _:
                return self._write(request, path, body)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        """Only of lists: nothing here is watched."""
        yield Answered(await self.request(request))

    async def close(self) -> None: ...

    def _get(self, path: str, query: Mapping[str, str]) -> HttpResponse:
        if path in RESOURCES:
            return ok(
                {
                    "kind": "APIResourceList",
                    "resources": [{"name": r, "kind": k, "namespaced": n} for r, k, n in RESOURCES[path]],
                }
            )
        if path == "/apis/things.example":
            return ok(
                {"kind": "APIGroup", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}
            )
        if path in self.objects:
            return ok(self.objects[path])
        plural = path.rsplit("/", 1)[-1]
        if plural not in ("secrets", "configmaps", "clusters", "things", "leases", "namespaces"):
            return status(404, "NotFound")
        selector = Selector.parse(query.get("labelSelector", ""))
        name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        items = [
            obj
            for place, obj in sorted(self.objects.items())
            if place.split("/")[-2] == plural
            and ("/namespaces/" not in path or place.startswith(path + "/"))
            and selector.matches(obj["metadata"].get("labels"))
            and (not name or obj["metadata"]["name"] == name)
        ]
        kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        if plural == "leases":
            kind = {"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1"}
        return ok({**kind, "metadata": {"resourceVersion": str(self.version)}, "items": items})

    def _create(self, path: str, body: dict[str, Any]) -> HttpResponse:
        place = f"{path}/{body['metadata']['name']}"
        if place in self.objects:
            return status(409, "AlreadyExists")
        body["metadata"].setdefault("uid", f"new-uid-{self.version}")
        return ok(self._store(place, body), 201)

    def _delete(self, path: str, options: Mapping[str, Any]) -> HttpResponse:
        if path not in self.objects:
            return status(404, "NotFound")
        meta, wanted = self.objects[path]["metadata"], options.get("preconditions") or {}
        if any(meta[key] != value for key, value in wanted.items()):
            return status(409, "Conflict")
        del self.objects[path]
        return ok({"kind": "Status", "status": "Success"})

    def _write(self, request: HttpRequest, path: str, body: Any) -> HttpResponse:
        place = path.removesuffix("/status")
        if place not in self.objects:
            return status(404, "NotFound")
        old = self.objects[place]
        if request.method == "PUT":
            new = body
        elif request.headers["Content-Type"] == "application/merge-patch+json":
            new = apply_merge_patch(old, body)
        else:
            try:
                new = apply_json_patch(old, body)
            except Invalid:
                return status(422, "Invalid", details={})
        for field in ("resourceVersion", "uid"):
            if new["metadata"].get(field, old["metadata"][field]) != old["metadata"][field]:
                return status(409, "Conflict")
        return ok(self._store(place, new) if new != old else old)

    def _store(self, place: str, obj: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        if "leases" in place:
            kind = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}
        stored = {**obj, **kind, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self.objects[place] = stored
        return stored


def ok(body: Mapping[str, Any], code: int = 200) -> HttpResponse:
    return HttpResponse(code, {"content-type": "application/json"}, json.dumps(body).encode())


def status(code: int, reason: str, message: str = "refused", **fields: Any) -> HttpResponse:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return ok({**body, "message": message, **fields}, code)
