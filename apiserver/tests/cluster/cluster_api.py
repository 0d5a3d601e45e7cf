"""A cluster as the test cases see it: requests, and waiting for the effects of controllers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from kubeshard.runtime.transport import HttpRequest, Transport

WITHIN = 60.0
CORE, APPS, BATCH = "/api/v1", "/apis/apps/v1", "/apis/batch/v1"


class ClusterApi:
    """`namespace` belongs to the test case; paths that do not begin with a slash are relative to it: `configmaps/a`."""

    def __init__(self, transport: Transport, token: str, namespace: str) -> None:
        self._transport = transport
        self._token = token
        self.namespace = namespace

    async def create(self, path: str, body: Any) -> Any:
        return await self._done("POST", path, body)

    async def get(self, path: str) -> Any:
        """Returns None if the object does not exist."""
        code, body = await self._call("GET", path)
        assert code in (200, 404), body
        return body if code == 200 else None

    async def is_served(self, path: str) -> bool:
        code, _ = await self._call("GET", path)
        return code == 200

    async def items(self, path: str) -> list[Any]:
        found = await self._done("GET", path)
        return list(found["items"])

    async def names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in await self.items(path)]

    async def patch(self, path: str, body: Any) -> Any:
        return await self._done("PATCH", path, body, "application/merge-patch+json")

    async def delete(self, path: str, propagation: str = "") -> Any:
        options = {"kind": "DeleteOptions", "apiVersion": "v1"}
        return await self._done(
            "DELETE", path, {**options, **({"propagationPolicy": propagation} if propagation else {})}
        )

    async def attempt(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Returns the code and body of the response, even if it is an error."""
        return await self._call(method, path, body)

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Returns the first true result of `holds`."""
        found = None
        try:
            async with asyncio.timeout(WITHIN):
                while not (found := await holds()):  # noqa: ASYNC110 - what changes may be in another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{what} did not hold within {WITHIN:.0f} s") from None
        return found

    async def until_gone(self, *paths: str) -> None:
        for path in paths:

            async def gone(path: str = path) -> bool:
                return await self.get(path) is None

            await self.until(gone, f"{path} is gone")

    async def until_status(self, path: str, **wanted: Any) -> Any:
        """Returns the object once its status has these values in these fields (None: absent)."""

        async def has() -> Any:
            found = await self.get(path)
            status = (found or {}).get("status") or {}
            return found if all(status.get(name) == value for name, value in wanted.items()) else None

        return await self.until(has, f"{path} has {wanted}")

    async def until_count(self, path: str, count: int) -> list[Any]:
        async def has() -> Any:
            found = await self.items(path)
            return (found,) if len(found) == count else None

        return list((await self.until(has, f"{path} has {count} items"))[0])

    def _target(self, path: str) -> str:
        if path.startswith("/"):
            return path
        plural = path.partition("/")[0].partition("?")[0]
        return f"{_PREFIX.get(plural, CORE)}/namespaces/{self.namespace}/{path}"

    async def _done(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        code, answer = await self._call(method, path, body, content_type)
        assert code < 300, answer
        return answer

    async def _call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": "application/json",
            "Content-Type": content_type,
        }
        data = None if body is None else json.dumps(body).encode()
        answer = await self._transport.request(HttpRequest(method, self._target(path), headers, data, 30.0))
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.status, json.loads(answer.body) if is_json else answer.body.decode(errors="replace")


_PREFIX = {
    **dict.fromkeys(
        ("deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions"), APPS
    ),
    "jobs": BATCH,
    "cronjobs": BATCH,
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "gadgets": "/apis/cluster.kubeshard.test/v1",
}


def owned_by(owner: Any, **more: Any) -> dict[str, Any]:
    """Returns an owner reference."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **more,
    }


def config_map(name: str, *owners: Any, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}}


def template(image: str = "a", **labels: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": image}]
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
    }


def workload(name: str, image: str = "a", **spec: Any) -> dict[str, Any]:
    """Returns an object of any kind that has a selector and a template."""
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(image, app=name), **spec},
    }


def with_image(image: str) -> dict[str, Any]:
    """Returns a merge patch that changes a workload's image."""
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}


def condition(obj: Any, type_: str) -> Any:
    return next(
        (each for each in (obj.get("status") or {}).get("conditions") or () if each["type"] == type_), None
    )
