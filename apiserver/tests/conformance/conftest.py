"""One suite, several targets: `model` is the in-memory server, `http` the same over HTTPS, `real` a kube-apiserver with
etcd. Only the cases that concern the connection itself, marked `wire`, run over HTTPS; for all others,
`test_conformance_wire` proves that both answer the same bytes.
"""

from __future__ import annotations

import functools
import json
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from conformance_api import Api, install
from conformance_kinds import SITE_DEFINITION, SITES
from conformance_recording import (
    Recordings,
    Tape,
    Taped,
    case_id,
    complaints,
    differences,
    known_differences,
)
from conformance_registration import Registration
from conformance_webhooks import Hooks, running_hooks

from kubeshard.client import Client, ClusterConfig, load_config
from kubeshard.client.config import BearerToken, Tls
from kubeshard.runtime.certificate_authority import new_client_leaf
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.tls import CertificatePair
from kubeshard.runtime.transport import Transport
from kubeshard_apiserver import ApiServer, Front, Identity, InMemoryTransport, User
from kubeshard_apiserver.admission.caller import HttpCaller
from kubeshard_apiserver.front.gate import Peer
from kubeshard_apiserver.resources.admission_plugins import ADMISSION_PLUGINS
from kubeshard_apiserver.serving import Credentials, EmbeddedServer
from kubeshard_apiserver.testing.kube_api import BackgroundLoop

TOKEN = "conformance"
ADMIN = User("admin", "admin", ("system:masters",))
"""The administrator, as in `kubeshard_apiserver.testing.ControlPlane`."""
PLUGINS = [name for name in ADMISSION_PLUGINS if name != "ServiceAccount"]
"""Those of `kubeshard_apiserver.testing.ControlPlane`, where nobody creates accounts."""


class Target:
    """`transport` makes a connection, `certified` one with a client certificate; `forget` expires earlier resource
    versions.
    """

    def __init__(
        self,
        config: ClusterConfig,
        transport: Callable[[], Transport],
        certified: Callable[[CertificatePair], Transport],
        forget: Callable[[int], None],
        authority: Callable[[str, Sequence[str]], CertificatePair],
        tape: Tape,
    ) -> None:
        self.config = config
        self.transport = lambda: Taped(transport(), tape)
        self.certified = lambda user, *groups: Taped(certified(authority(user, groups)), tape)
        self.forget = forget


@pytest.fixture(scope="session")
def credentials() -> Credentials:
    return Credentials.made(SystemClock().wall())


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[ApiServer, Identity]]:
    """One server for all cases of a file. What it has stored may be part of other objects: nobody has changed it."""
    server = ApiServer(admission_plugins=PLUGINS)
    yield server, Identity(server, tokens={TOKEN: ADMIN})
    changed = [
        state.value for state in server.store.decoded if msgspec.json.encode(state.value) != state.data
    ]
    assert not changed


@pytest.fixture
async def caller() -> AsyncIterator[HttpCaller]:
    """Performs the calls to admission webhooks if the server is ours."""
    caller = HttpCaller(HttpTransport)
    yield caller
    await caller.close()


_TAPE = pytest.StashKey[Tape]()
_recordings = functools.cache(Recordings)
_known = functools.cache(known_differences)
_recorded: dict[str, set[str]] = {}
"""Which cases of which areas exist, if this run records."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="record the real server's answers: `make record`")


@pytest.fixture
def tape(request: pytest.FixtureRequest, name: str) -> Tape:
    return request.node.stash.setdefault(_TAPE, Tape(name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Compares what a case was answered with what the real server has answered to it, or records that."""
    result = yield
    if (tape := item.stash.get(_TAPE, None)) is None:
        return result
    if item.get_closest_marker("live"):
        return result
    area, case = _area(item), case_id(item.name)
    cases = _recordings(area).cases
    if item.config.getoption("--record", False):
        cases[case] = tape.told()
    elif item.get_closest_marker("kube") is None:
        if case not in cases:
            pytest.fail("the real server's answers are not recorded: `make record`, or mark it `live`", False)
        found = complaints(f"{area}: {case}", [*differences(tape.told(), cases[case])], _known())
        if found:
            pytest.fail("\n".join(["not as the real server:", *found]), pytrace=False)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--record", False) and not any("::" in argument for argument in config.args):
        for item in items:
            if "target" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("live"):
                _recorded.setdefault(_area(item), set()).add(case_id(item.name))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes what was recorded, without cases that are gone."""
    ran = {_area(item) for item in session.items if item.stash.get(_TAPE, None)}
    for area in ran if session.config.getoption("--record", False) else ():
        recordings = _recordings(area)
        for gone in recordings.cases.keys() - _recorded.get(area, recordings.cases.keys()):
            del recordings.cases[gone]
        recordings.write()


def _area(item: pytest.Item) -> str:
    return item.path.stem.removeprefix("test_conformance_")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        over_https = pytest.param(
            "http", marks=pytest.mark.long
        )  # test_apiserver_same_bytes.py shows that they agree
        wire = [over_https] if metafunc.definition.get_closest_marker("wire") else []
        with_real = metafunc.config.getoption("--kube") != "embedded"
        real = [pytest.param("real", marks=pytest.mark.kube)] if with_real else []
        metafunc.parametrize("target", ["model", *wire, *real], indirect=True)


@pytest.fixture
async def target(
    request: pytest.FixtureRequest,
    credentials: Credentials,
    model: tuple[ApiServer, Identity],
    caller: HttpCaller,
    tape: Tape,
) -> AsyncIterator[Target]:
    issued = functools.partial(_issued, credentials.authority)
    if request.param == "model":
        server, gate = model
        front = Front(server, gate=gate, caller=caller)
        config = ClusterConfig("http://model", auth=BearerToken(TOKEN))
        yield Target(
            config,
            lambda: InMemoryTransport(front),
            lambda pair: InMemoryTransport(
                front, peer=Peer(ssl.PEM_cert_to_DER_cert(pair.certificate.decode()))
            ),
            lambda _: front.server.store.compact(),
            issued,
            tape,
        )
    elif request.param == "http":
        served: Served = request.getfixturevalue("served")
        yield _over_http(served.config, lambda _: served.forget(), issued, tape)
    else:
        control_plane = request.getfixturevalue("control_plane")
        config = await load_config(kubeconfig=str(control_plane.kubeconfig))
        forget = functools.partial(_compact, control_plane.children[0].pid)
        yield _over_http(config, forget, control_plane.client_certificate, tape)


@dataclass
class Served:
    """The server over HTTPS, in a separate thread."""

    config: ClusterConfig
    forget: Callable[[], None]


@pytest.fixture(scope="session")
def served(credentials: Credentials) -> Iterator[Served]:
    """One server for all cases, like the real one."""
    background, stack = BackgroundLoop("conformance"), AsyncExitStack()

    async def start() -> EmbeddedServer:
        server = ApiServer(admission_plugins=PLUGINS)
        gate = Identity(server, tokens={credentials.token: ADMIN})
        return await stack.enter_async_context(EmbeddedServer(server, credentials=credentials, gate=gate))

    running = background.call(start())

    async def compact() -> None:
        running.server.store.compact()

    config = ClusterConfig(running.url, Tls(ca=credentials.ca), BearerToken(running.token))
    yield Served(config, lambda: background.call(compact()))
    background.call(stack.aclose())
    background.stop()


def _issued(authority: CertificatePair, user: str, groups: Sequence[str]) -> CertificatePair:
    return new_client_leaf(authority, user, groups, SystemClock().wall(), 3600.0)


def _over_http(
    config: ClusterConfig,
    forget: Callable[[int], None],
    authority: Callable[[str, Sequence[str]], CertificatePair],
    tape: Tape,
) -> Target:
    def connected(config: ClusterConfig) -> Transport:
        return HttpTransport(config.server, config.tls)

    def certified(pair: CertificatePair) -> Transport:
        certificate, key = pair.certificate.decode(), pair.private_key.decode()
        return connected(replace(config, tls=replace(config.tls, certificate=certificate, key=key)))

    return Target(config, lambda: connected(config), certified, forget, authority, tape)


def _compact(etcd: int, revision: int) -> None:
    """Compacts etcd through its JSON gateway, whose address is on its command line."""
    arguments = Path(f"/proc/{etcd}/cmdline").read_text().split("\0")
    flag = "--listen-client-urls="
    url = next(argument.removeprefix(flag) for argument in arguments if argument.startswith(flag))
    body = json.dumps({"revision": revision, "physical": True}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/v3/kv/compaction", body, method="POST")).close()


@pytest.fixture
async def api(target: Target) -> AsyncIterator[Api]:
    transport = target.transport()
    auth = target.config.auth
    yield Api(transport, auth.token if isinstance(auth, BearerToken) else "")
    await transport.close()


@pytest.fixture
async def client(target: Target) -> AsyncIterator[Client]:
    async with Client(target.config, transport=target.transport()) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other case uses, and that is the same in every run."""
    case = f"{request.path.stem}::{case_id(request.node.name)}"
    return f"case-{crc32(case.encode()):08x}"


@pytest.fixture
async def ns(api: Api, name: str) -> str:
    """The name of a namespace of the case's own."""
    answer = await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    assert answer.status == 201, answer.text
    return name


@pytest.fixture
def maps(ns: str) -> str:
    """The path of the ConfigMaps of the case's namespace."""
    return f"/api/v1/namespaces/{ns}/configmaps"


@pytest.fixture
def leases(ns: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"


@pytest.fixture
async def hooks() -> AsyncIterator[Hooks]:
    """A webhook server that records its requests."""
    async with running_hooks() as hooks:
        yield hooks


@pytest.fixture
async def registered(api: Api, hooks: Hooks, ns: str) -> AsyncIterator[Registration]:
    """Registers webhooks for the case's namespace, and removes them after the case."""
    registration = Registration(api, hooks, ns)
    yield registration
    await registration.remove()


@pytest.fixture
async def sites(api: Api, ns: str) -> str:
    """The path of the custom resources of kind Site in the case's namespace."""
    await install(api, SITE_DEFINITION)
    return SITES.format(ns)


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Test IDs that are the same in every run, even for sets."""
    if isinstance(val, set):
        return ",".join(sorted(map(str, val)))[:60]
    return str(val)[:60] if isinstance(val, dict | list) else None
