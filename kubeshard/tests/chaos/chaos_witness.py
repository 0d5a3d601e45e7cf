"""The witnesses of a run: etcd itself, the audit logs of the API servers, the journals of the shards.

etcd is watched directly, so nothing that is stored goes unseen, whatever an API server answered; it has each object
before and after a change, in one order for all kinds.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chaos_ranges import Shares
from chaos_records import Audited, Change, Object, Worked

MAIN, CHILD, LEASES = "/registry/chaos.kubeshard.test/errands/", "/registry/configmaps/", "/registry/leases/"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [
                {"group": "chaos.kubeshard.test", "resources": ["errands"]},
                {"group": "", "resources": ["configmaps"]},
            ],
        },
        {"level": "None"},
    ],
}
SHARDER_USER = "system:serviceaccount:sharding-system:sharder"
_KINDS = {"errands": "main", "configmaps": "child"}
_AGAIN = 0.1


class EtcdWatch:
    """Follows objects of these namespaces, and all Leases, from its start on. API servers have to store JSON. `shares`:
    of a ring by ranges, whose shards are put on objects as labels; a change of the assignment is one of each object
    then.
    """

    def __init__(
        self,
        url: str,
        namespaces: Collection[str],
        heard: Callable[[Change], None],
        shares: Shares | None = None,
    ) -> None:
        self._shares = shares
        self._address = urlsplit(url)
        self._namespaces = namespaces
        self._heard = heard
        self._revision = 0
        self._stopped = False
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.latest: dict[tuple[str, str], Object] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            connection.sock.close()

    def snapshot(self, at: float) -> Sequence[Change]:
        """What exists."""
        return [
            Change(at, int(obj["metadata"].get("resourceVersion", 0)), kind, name, obj, obj)
            for (kind, name), obj in [*self.latest.items()]
        ]

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._follow()
            except (OSError, http.client.HTTPException, ValueError, AttributeError):
                time.sleep(_AGAIN)

    def _follow(self) -> None:
        assert self._address.hostname
        self._connection = http.client.HTTPConnection(self._address.hostname, self._address.port)
        wanted: dict[str, Any] = {"key": _encoded("/registry/"), "range_end": _encoded("/registry0")}
        wanted |= {"prev_kv": True, "start_revision": self._revision + 1}
        self._connection.request("POST", "/v3/watch", json.dumps({"create_request": wanted}))
        answer = self._connection.getresponse()
        while not self._stopped and (line := answer.readline()):
            at = time.monotonic()
            for event in json.loads(line)["result"].get("events", ()):
                self._event(at, event)

    def _event(self, at: float, event: Any) -> None:
        entry = event["kv"]
        self._revision = int(entry["mod_revision"])
        found = self._named(base64.b64decode(entry["key"]).decode())
        if found is None:
            return
        before = _object(event.get("prev_kv"))
        after = None if event.get("type") == "DELETE" else _object(entry)
        if (shares := self._shares) is not None:
            if found == ("child", shares.assignment):
                shares.assigned(after)
                self._moved(at, shares)
                return
            before, after = (shares.labelled(found[0], each) for each in (before, after))
        if after is None:
            self.latest.pop(found, None)
        else:
            self.latest[found] = after
        self._heard(Change(at, self._revision, *found, before, after))

    def _moved(self, at: float, shares: Shares) -> None:
        for (kind, name), before in [*self.latest.items()]:
            after = shares.labelled(kind, before)
            if after is not None and after != before:
                self.latest[kind, name] = after
                self._heard(Change(at, self._revision, kind, name, before, after))

    def _named(self, key: str) -> tuple[str, str] | None:
        if key.startswith(LEASES):
            return "lease", key.removeprefix(LEASES)
        place, _, name = key.rpartition("/")
        for kind, prefix in (("main", MAIN), ("child", CHILD)):
            if key.startswith(prefix) and place.removeprefix(prefix) in self._namespaces:
                return kind, name
        return None


class AuditLogs:
    """The answers of API servers, each with a log of its own."""

    def __init__(self, files: Sequence[Path], namespaces: Collection[str]) -> None:
        self._files = dict.fromkeys(files, 0)
        self._namespaces = namespaces

    def new(self) -> Iterator[Audited]:
        """What has been logged since the last call."""
        off = time.time() - time.monotonic()
        for file, position in self._files.items():
            lines, self._files[file] = _new_lines(file, position)
            for line in lines:
                entry = json.loads(line)
                about = entry.get("objectRef") or {}
                if about.get("namespace") not in self._namespaces or about.get("resource") not in _KINDS:
                    continue
                at = datetime.fromisoformat(entry["stageTimestamp"].replace("Z", "+00:00")).timestamp()
                answer = entry.get("responseObject") or {}
                # The answer to a delete has the version before it.
                version = answer.get("metadata", {}).get("resourceVersion", 0) or 0
                dry = "dryRun=" in entry["requestURI"]
                # An instance that is the sharder says so in each request of the sharder.
                is_sharder = entry.get("userAgent", "").endswith("/sharder")
                yield Audited(
                    at - off,
                    SHARDER_USER if is_sharder else entry["user"]["username"],
                    entry["verb"],
                    _KINDS[about["resource"]],
                    about.get("name") or answer.get("metadata", {}).get("name", ""),
                    entry.get("responseStatus", {}).get("code", 0),
                    0 if dry or entry["verb"] == "delete" else int(version),
                )


class Journals:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._positions: dict[Path, int] = {}

    def new(self) -> Iterator[Worked]:
        """What has been written since the last call."""
        for file in self._folder.glob("*.journal"):
            lines, self._positions[file] = _new_lines(file, self._positions.get(file, 0))
            yield from (Worked(**json.loads(line)) for line in lines)


def _new_lines(file: Path, position: int) -> tuple[Sequence[bytes], int]:
    """Complete lines from this position, and the one after them."""
    if not file.exists():
        return [], position
    with file.open("rb") as opened:
        opened.seek(position)
        found = opened.read().rpartition(b"\n")[0]
    return found.splitlines(), position + len(found) + bool(found)


def _object(entry: Any) -> Object | None:
    if not entry or "value" not in entry:
        return None
    obj: dict[str, Any] = json.loads(base64.b64decode(entry["value"]))
    obj["metadata"]["resourceVersion"] = entry["mod_revision"]  # etcd has it beside the object
    return obj


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
