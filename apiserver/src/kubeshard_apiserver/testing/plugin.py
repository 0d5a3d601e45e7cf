"""A pytest plugin: an API server for tests. pytest finds it once kubeshard-apiserver is installed.

    pytest --kube=embedded|real|both

| fixture | lives for | is |
|---|---|---|
| `kube_api` | the session | a `kubeshard_apiserver.testing.kube_api.KubeApi`: kubeconfig, clients, manifests |
| `kube_namespace` | the test | the name of a namespace for this test alone |
| `kube_operator` | the test | a function that runs a manager on that API server until the end of the test |
| `kube_client` | the test | a kubeshard Client; needs pytest-asyncio, or anyio's plugin |
| `kube_memory` | the test | a `kubeshard_apiserver.testing.memory.MemoryApi`: no socket, no thread, nothing shared |

`embedded`, the default, is kubeshard's own API server in a thread of the test run. `real` is a kube-apiserver with
etcd; `both` runs each test that uses `kube_api` once on each, and marks the run on the real server `kube`.

Guaranteed: a test run that uses none of these fixtures imports nothing but this module.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.manager.manager import Manager
    from kubeshard_apiserver.testing.control_plane import ControlPlane
    from kubeshard_apiserver.testing.kube_api import KubeApi
    from kubeshard_apiserver.testing.memory import MemoryApi

_FIXTURES = {"kube_api", "kube_namespace", "kube_operator", "kube_client", "kube_memory"}

TARGETS = {"embedded": ("embedded",), "real": ("real",), "both": ("embedded", "real")}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kubeshard", "Kubernetes API server for tests")
    group.addoption(
        "--kube",
        choices=list(TARGETS),
        default="embedded",
        help="the API server behind the fixture kube_api: kubeshard's embedded one (default), a real "
        "kube-apiserver (KUBEBUILDER_ASSETS, or `make kube` in kubeshard's repository), or each test on both",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kube: runs on a real kube-apiserver (see --kube)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    targets = TARGETS[metafunc.config.getoption("--kube")]
    if "kube_control_plane" in metafunc.fixturenames:
        targets = ("real",)
    if "kube_api" not in metafunc.fixturenames or targets == ("embedded",):
        return
    marked = [
        pytest.param(name, marks=pytest.mark.kube) if name == "real" else pytest.param(name)
        for name in targets
    ]
    metafunc.parametrize("kube_api", marked, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "kube_control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kube)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Fails an async test that no plugin has taken. pytest itself says to install one, although one may be."""
    if inspect.iscoroutinefunction(pyfuncitem.obj) and _FIXTURES & set(pyfuncitem.fixturenames):
        how = (
            'set asyncio_mode = "auto" in [tool.pytest.ini_options] of pyproject.toml, or asyncio_mode = auto in '
            "[pytest] of pytest.ini"
        )
        installed = find_spec("pytest_asyncio") is not None
        pytest.fail(
            f"nothing runs async tests here: {'' if installed else 'pip install pytest-asyncio, and '}{how}",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def kube_options() -> dict[str, bool]:
    """What runs next to the server: `controllers` (garbage collection, namespaces) and `pods` (workloads get pods that
    become ready). Override it in a conftest.py. If that is not the topmost conftest.py, import `kube_api` from this
    module as well; otherwise the folder shares the server with the tests that ran before.
    """
    return {"controllers": True, "pods": True}


@pytest.fixture(scope="session")
def kube_control_plane(kube_options: dict[str, bool]) -> Iterator[ControlPlane]:
    """The control plane of the real API server. A test that uses this fixture runs only on the real server."""
    from kubeshard.core.errors import ConfigurationError
    from kubeshard_apiserver.testing.control_plane import ControlPlane

    try:
        control_plane = ControlPlane(
            controller_manager=kube_options["controllers"], pods=kube_options["pods"]
        )
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)
    with control_plane:
        yield control_plane


@pytest.fixture(scope="session")
def kube_api(request: pytest.FixtureRequest) -> Iterator[KubeApi]:
    """An API server shared by all tests: give cluster-scoped objects names that are unique to the test."""
    api = _real(request) if getattr(request, "param", "embedded") == "real" else _embedded(request)
    yield api
    api.stop()


def _real(request: pytest.FixtureRequest) -> KubeApi:
    from kubeshard_apiserver.testing.kube_api import RealApi

    return RealApi(request.getfixturevalue("kube_control_plane"))


def _embedded(request: pytest.FixtureRequest) -> KubeApi:
    from kubeshard.core.errors import ConfigurationError
    from kubeshard_apiserver.testing.kube_api import EmbeddedApi

    try:
        return EmbeddedApi(**request.getfixturevalue("kube_options"))
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def kube_namespace(kube_api: KubeApi) -> Iterator[str]:
    """A namespace that is deleted after the test, without waiting for the deletion to finish."""
    name = kube_api.new_namespace()
    yield name
    kube_api.delete_namespace(name)


class RunOperator(Protocol):
    """The type of `kube_operator`."""

    def __call__(self, manager: Manager, *, within: float = 60.0) -> None:
        """Returns once the manager's controllers work, and the API server calls its webhooks; raises Unprepared, with
        the reason, if it takes longer than `within` seconds.
        """
        ...


@pytest.fixture
def kube_operator(kube_api: KubeApi) -> Iterator[RunOperator]:
    """Runs managers, which were created without a client, each in a thread of its own. At the end of the test they
    stop, and what they registered is removed: webhook configurations, and the conversion of definitions.
    """
    from kubeshard_apiserver.testing.operators import running_operator

    with ExitStack() as stack:

        def run(manager: Manager, *, within: float = 60.0) -> None:
            stack.enter_context(running_operator(manager, kube_api.config, within))

        yield run


def _asynchronous(fixture: Callable[[KubeApi], AsyncIterator[Client]]) -> Any:
    """Declares an asynchronous fixture. pytest-asyncio's strict mode requires its own decorator; anyio's plugin
    accepts any fixture.
    """
    if find_spec("pytest_asyncio") is not None:
        import pytest_asyncio

        return pytest_asyncio.fixture(fixture)
    return pytest.fixture(fixture)


@_asynchronous
async def kube_client(kube_api: KubeApi) -> AsyncIterator[Client]:
    """A cluster administrator's client."""
    async with kube_api.client() as client:
        yield client


@pytest.fixture
def kube_memory() -> MemoryApi:
    from kubeshard_apiserver.testing.memory import MemoryApi

    return MemoryApi()
