"""Sends the same random requests to the embedded API server and to a real one, and reports where the answers differ in
what a client can act on.

    python apiserver/tests/differential/differ.py --seeds 1-5 --requests 400

Compared are the status code; of a refusal its reason, and the field and reason of each cause; of an object everything
but what servers make up (uids, times, versions, addresses, ports, generated names), where a version counts as new or as
the one before; of a list its items and whether it goes on. Messages are not compared. After each difference, what the
request was about is deleted on both, so that one difference does not cause others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))

from conformance_api import Answer, Api, install
from traffic import DEFINITION, KINDS, Ref, Request, Traffic

from kubeshard.client import load_config
from kubeshard.client.config import BearerToken
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.http import HttpTransport
from kubeshard_apiserver import ApiServer, Front, Identity, InMemoryTransport, User
from kubeshard_apiserver.testing.control_plane import ControlPlane

TOKEN = "differ"
UID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
MADE_UP = {
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "continue",
    "time",
    "healthCheckNodePort",
}


class Side:
    """One server, and what it said of each object."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._seen: dict[str, list[dict[str, Any]]] = {}

    async def send(self, request: Request) -> Answer:
        return await self.api.call(
            request.method,
            request.path,
            self._own(request.body),
            content_type=request.content_type,
            accept=request.accept,
            **self._own(request.query),
        )

    def note(self, path: str, metadata: dict[str, Any]) -> None:
        seen = self._seen.setdefault(path, [])
        if not seen or seen[-1].get("resourceVersion") != metadata.get("resourceVersion"):
            self._seen[path] = [*seen, metadata][-2:]

    def forget(self, path: str) -> None:
        self._seen.pop(path, None)

    def version(self, path: str) -> str:
        return str(self._seen[path][-1].get("resourceVersion", "")) if path in self._seen else ""

    def _own(self, value: Any) -> Any:
        if isinstance(value, Ref):
            seen = self._seen.get(value.path, [{}])
            return seen[0 if value.before else -1].get(
                value.field, "9" if value.field == "resourceVersion" else "u"
            )
        if isinstance(value, dict):
            return {key: self._own(inner) for key, inner in value.items()}
        return [self._own(inner) for inner in value] if isinstance(value, list) else value


def essence(answer: Answer, known: str) -> Any:
    """What of an answer is compared. `known`: the version of the object before the request."""
    body = answer.body
    if isinstance(body, dict) and body.get("kind") == "Status" and body.get("apiVersion") == "v1":
        details = body.get("details") or {}
        causes = sorted({(c.get("field", ""), c.get("reason", "")) for c in details.get("causes", ())})
        return {
            "status": answer.status,
            "reason": body.get("reason"),
            "code": body.get("code"),
            "causes": causes,
        }
    return {
        "status": answer.status,
        "type": answer.headers.get("content-type", ""),
        "body": _plain(body, known),
    }


def _plain(value: Any, known: str, key: str = "") -> Any:
    if key in MADE_UP and value:
        return f"<{key}>"
    if isinstance(value, dict):
        # A client cannot tell an empty token from none.
        return {
            name: _plain(inner, known, name)
            for name, inner in value.items()
            if (name, inner) != ("continue", "")
        }
    if isinstance(value, list):
        plain = [_plain(inner, known) for inner in value]
        return (
            sorted(plain, key=lambda entry: json.dumps(entry, sort_keys=True))
            if key == "managedFields"
            else plain
        )
    if key == "resourceVersion":
        return "<same>" if value == known else "<new>" if value else ""
    if isinstance(value, str) and UID.match(value):
        return "<uid>"
    return "<time>" if isinstance(value, str) and TIME.match(value) else value


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two essences differ, without the values."""
    if isinstance(a, dict) and isinstance(b, dict):
        found = []
        for key in sorted({*a, *b}):
            if key not in a or key not in b:
                found.append(f"{path}.{key} only {'real' if key not in a else 'embedded'}")
            else:
                found += differences(a[key], b[key], f"{path}.{key}")
        return found
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [line for x, y in zip(a, b, strict=True) for line in differences(x, y, f"{path}[]")]
    return (
        []
        if a == b and isinstance(a, bool) == isinstance(b, bool)
        else [f"{path}: {_short(a)} != {_short(b)}"]
    )


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) < 160 else f"{text[:160]}..."


@dataclass
class Report:
    requests: int = 0
    differing: int = 0
    accepted: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.differing / max(self.requests, 1)

    def add(self, request: Request, found: Sequence[str], ours: Answer, real: Answer) -> None:
        self.differing += 1
        resource = next((r for r in KINDS if f"/{r}" in request.path), "")
        cause = (
            f"{resource} {request.method} {request.content_type.partition('/')[2]}: {'; '.join(found)[:300]}"
        )
        self.causes[cause] += 1
        self.examples.setdefault(
            cause,
            f"{request}\n      ours: {ours.status} {ours.text[:700]}\n      real: {real.status} {real.text[:700]}",
        )


async def compare(ours: Api, real: Api, seed: int, requests: int, report: Report, namespace: str) -> None:
    """Sends the requests of one seed to both servers."""
    sides = Side(ours), Side(real)
    for side in sides:
        answer = await side.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert answer.status == 201, answer.text
    traffic = Traffic(seed, namespace)
    for request, _ in zip(traffic, range(requests), strict=False):
        before = [side.version(request.about) for side in sides]
        answers = [await side.send(request) for side in sides]
        report.requests += 1
        report.accepted += answers[1].status < 300
        found = differences(*(essence(a, known) for a, known in zip(answers, before, strict=True)))
        if found:
            report.add(request, found, *answers)
        await _settle(sides, traffic, request, differed=bool(found))


async def _settle(sides: Sequence[Side], traffic: Traffic, request: Request, *, differed: bool) -> None:
    """Looks at what the request was about on both servers, and deletes it if it differs."""
    if request.method == "GET":
        return
    paths = [request.about] if request.about else []
    if not paths and request.method == "DELETE":
        paths = [p for p in traffic.known if p.startswith(f"{request.path}/")]
    for path in paths:
        if not differed:
            answers = [await side.api.get(path) for side in sides]
            knowns = [side.version(path) for side in sides]
            stored = differences(*(essence(a, known) for a, known in zip(answers, knowns, strict=True)))
            if not stored:
                exists = answers[0].status == 200
                for side, answer in zip(sides, answers, strict=True):
                    side.note(path, answer.meta) if exists else side.forget(path)
                traffic.answered(Request("", path, about=path), exists)
                continue
        for side in sides:
            await side.api.merge(path, {"metadata": {"finalizers": None}})
            await side.api.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
            side.forget(path)
        traffic.answered(Request("", path, about=path), exists=False)


@asynccontextmanager
async def servers(control_plane: ControlPlane) -> AsyncIterator[tuple[Api, Api]]:
    """Ours in memory, and the real one, both with the custom resource."""
    server = ApiServer(admission_plugins=["DefaultTolerationSeconds", "LimitRanger", "Priority"])
    gate = Identity(server, tokens={TOKEN: User("admin", "admin", ("system:masters",))})
    ours = Api(InMemoryTransport(Front(server, gate=gate)), TOKEN)
    config = await load_config(kubeconfig=str(control_plane.kubeconfig))
    assert isinstance(config.auth, BearerToken)
    transport = HttpTransport(config.server, config.tls)
    real = Api(transport, config.auth.token)
    for api in (ours, real):
        await install(api, DEFINITION)
    try:
        yield ours, real
    finally:
        await transport.close()


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


async def _main(options: argparse.Namespace) -> int:
    report = Report()
    with ControlPlane() as control_plane:
        async with servers(control_plane) as (ours, real):
            for seed in options.seeds:
                await compare(ours, real, seed, options.requests, report, f"seed-{seed}")
                print(f"seed {seed}: {report.differing} of {report.requests} differ so far", flush=True)
    for cause, count in report.causes.most_common(options.show):
        print(f"{count:5} {cause}")
        if options.examples:
            print(f"      {report.examples[cause]}")
    print(
        f"{report.differing} of {report.requests} answers differ: {report.rate:.2%}; {report.accepted} were accepted"
    )
    return report.rate > options.limit


def main() -> int:
    parser = argparse.ArgumentParser(description="Random requests to the embedded API server and a real one.")
    parser.add_argument("--seeds", type=_seeds, default=_seeds("1-5"), help="as 1-20, or one")
    parser.add_argument("--requests", type=int, default=400, help="for each seed")
    parser.add_argument("--show", type=int, default=60, help="how many kinds of differences to show")
    parser.add_argument("--examples", action="store_true", help="with a request and both answers")
    parser.add_argument("--limit", type=float, default=0.005, help="exit with 1 if a larger share differs")
    try:
        return asyncio.run(_main(parser.parse_args()))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
