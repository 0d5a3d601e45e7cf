"""Users of the cluster, and the probe by which their failures are judged. They use no code of kubeshard."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from chaos_records import Asked

ERRANDS = "/apis/chaos.kubeshard.test/v1/namespaces/{}/errands"
MERGE = "application/merge-patch+json"
CHILDREN = "/api/v1/namespaces/{}/configmaps"
KEPT = 10
"""So many objects a user has at most."""
LATER = 5
"""The child of a deleted object is deleted after so many others, when nobody works on the object any more."""


def place(name: str, namespaces: Sequence[str]) -> str:
    """The namespace of the object."""
    return namespaces[int(name.rpartition("-")[2]) % len(namespaces)]


class Answer(NamedTuple):
    status: int
    body: Any


class Requests:
    """Requests by a cluster administrator, each on a connection of its own."""

    def __init__(self, port: int, authority: Path, certificate: Path, timeout: float = 15.0) -> None:
        self._port = port
        self._timeout = timeout
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(certificate)

    async def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        """Raises OSError and HTTPException without an answer."""
        return await asyncio.to_thread(self.send_now, method, path, body, kind)

    def send_now(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=self._timeout, context=self._context
        )
        with closing(connection):
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": kind})
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read() or b"null"))


class User:
    """Creates objects, changes and deletes them, one request after the other; and sends the probes beside it."""

    def __init__(
        self, requests: Requests, namespaces: Sequence[str], note: Callable[[Asked], None], pause: float = 0.4
    ) -> None:
        self._requests = requests
        self._note = note
        self._pause = pause
        self._mine: list[str] = []
        self._gone: list[str] = []
        self._namespaces = namespaces
        self._numbers = itertools.count()

    async def work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._use())
            tasks.create_task(self._probe())

    async def _use(self) -> None:
        for number in self._numbers:
            name = f"user-{number}"
            errand = {
                "apiVersion": "chaos.kubeshard.test/v1",
                "kind": "Errand",
                "metadata": {"name": name},
                "spec": {"round": 0},
            }
            if await self._ask(f"create {name}", "POST", self._at(ERRANDS, name), errand):
                self._mine.append(name)
            if number % 2 and self._mine:
                changed = self._mine[number // 2 % len(self._mine)]
                body = {"metadata": {"annotations": {"changed": str(number)}}}
                path = f"{self._at(ERRANDS, changed)}/{changed}"
                await self._ask(f"patch {changed}", "PATCH", path, body)
            if len(self._mine) > KEPT:
                gone = self._mine.pop(0)
                await self._ask(f"delete {gone}", "DELETE", f"{self._at(ERRANDS, gone)}/{gone}")
                self._gone.append(gone)
            if len(self._gone) > LATER:  # what garbage collection would do
                name = self._gone.pop(0)
                child = f"{self._at(CHILDREN, name)}/{name}"
                with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                    await self._requests.send("DELETE", child)
            await asyncio.sleep(self._pause)

    def _at(self, path: str, name: str) -> str:
        return path.format(place(name, self._namespaces))

    async def _probe(self) -> None:
        path, number = "/api/v1/namespaces/default/configmaps", 0
        while True:
            number += 1
            body = {"metadata": {"name": "probe", "annotations": {"probe": str(number)}}}
            applied = {"apiVersion": "v1", "kind": "ConfigMap", **body}
            where = f"{path}/probe?fieldManager=probe&force=true"
            await self._ask("probe", "PATCH", where, applied, probe=True)
            await asyncio.sleep(self._pause)

    async def _ask(self, what: str, method: str, path: str, body: Any = None, *, probe: bool = False) -> bool:
        at, problem = time.monotonic(), ""
        kind = "application/apply-patch+yaml" if probe else MERGE if method == "PATCH" else "application/json"
        try:
            answer = await self._requests.send(method, path, body, kind)
            # A create whose answer was lost may have succeeded.
            if answer.status >= 400 and not (answer.status == 409 and method == "POST"):
                problem = f"{answer.status} {(answer.body or {}).get('message', '')}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = repr(error)
        self._note(Asked(at, time.monotonic(), probe, what, problem))
        return not problem
