"""Fixtures of all distributions' tests, on the API servers of the plugin (`kubeshard_apiserver.testing.plugin`): every
test that uses them runs on the embedded one and, marked `kube`, on a real one. Each server is started by the first test
that needs it and serves the whole session.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import kubeshard
import kubeshard_apiserver
import kubeshard_lab
from kubeshard.client import Client
from kubeshard.core import ConfigMap, Namespace, ObjectMeta
from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.testing.control_plane import ControlPlane
from kubeshard_apiserver.testing.kube_api import KubeApi

# A slow machine is not a bug in the code under test. During development, every run uses the same few examples; before a
# change lands, new ones; at night, many.
settings.register_profile("development", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("gate", deadline=None, max_examples=30, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=300, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "development"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs with SIGINT ignored. The programs under test would inherit that and ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Programs that tests start run the same code as the tests, even if another checkout is installed. A test that gives its
# program another environment passes this on.
_CODE = [
    str(Path(package.__file__).parents[1]) for package in (kubeshard, kubeshard_apiserver, kubeshard_lab)
]
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([*_CODE, *filter(None, [os.environ.get("PYTHONPATH")])])
)


PROGRAMS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system"}
)
"""The audit events that the interpreter raises when a program is started."""

OF_LIBRARIES = frozenset({"fc-list"})
"""Programs that a library starts once for each user: matplotlib, to list the fonts for its cache."""

OUTSIDE = frozenset({"system", "main_job", "kube", "interop", "go"})
"""Markers of tests that may start programs."""

SYSTEM = (
    "kubeshard/tests/e2e",
    "kubeshard/tests/install",
    "kubeshard/tests/kube",
    "kubeshard/tests/interop",
    "apiserver/tests/kubectl",
    "apiserver/tests/peers",
)
"""Folders whose tests all have the marker `system`."""

SCENES = (
    "lab/tests/scenes",
    "lab/tests/isolation",
    "lab/tests/traces",
    "lab/tests/monitoring",
    "lab/tests/simulation",
)
"""Folders of whole clusters on virtual time. A test in them has the marker `long` unless it has another one of a tier,
or `quick`.
"""

LIMIT = 5.0
"""How much processor time (seconds) a test in `make test` may take, on a busy machine too. What takes half a second on
a quiet one is marked `long`.
"""

TIERS = frozenset({"quick", "long", "nightly", *OUTSIDE})

_may_start_programs = True
_processor_time = 0.0
"""What this process had taken when the current test began."""


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event in PROGRAMS and not _may_start_programs and arguments[0] not in OF_LIBRARIES:
        raise AssertionError("a test that starts a program is marked `system` (docs/testing.md)")


sys.addaudithook(_audit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    global _may_start_programs, _processor_time
    _may_start_programs = any(mark.name in OUTSIDE for mark in item.iter_markers())
    _processor_time = time.process_time()
    root, ours = logging.getLogger(), logging.getLogger("kubeshard")
    before = root.level, [*root.handlers], ours.level, root.manager.disable
    try:
        return (yield)
    finally:
        _may_start_programs = True
        # A command that ran in the process of the test has set up logging for itself, not for the tests after it.
        level, root.handlers, of_ours, disabled = before
        root.setLevel(level)
        ours.setLevel(of_ours)
        logging.disable(disabled)
        if nextitem is None or nextitem.path != item.path:
            # What a file leaves behind, caches for the most part, stays. Collections need not look at it again.
            gc.collect()
            gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test of `make test` that is too dear for it, with its fixtures."""
    result = yield
    taken = time.process_time() - _processor_time
    item.user_properties.append(("processor time", taken))
    in_make_test = not _tiers(item) - {"quick"} and item.path.parent.name != "house"
    if taken > LIMIT and in_make_test:
        pytest.fail(f"this takes {taken:.1f} s of processor time: mark it `long` (docs/testing.md)", False)
    return result


def _tiers(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()} & TIERS


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Takes what collection leaves behind, half a million objects that stay, out of every garbage collection, and has
    fewer of them, as in the programs.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One for each processor: one more would only collect all tests once more."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return here or 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.parent.relative_to(config.rootpath).as_posix()
        if folder in SYSTEM:
            item.add_marker(pytest.mark.system)
        elif folder in SCENES and not _tiers(item):
            item.add_marker(pytest.mark.long)
        outside = _tiers(item) & {"kube", "interop", "go"} or "kube_control_plane" in item.fixturenames
        if folder.startswith("apiserver/") and outside:
            item.add_marker(pytest.mark.nightly)
        if item.get_closest_marker("real_at_night") and item.get_closest_marker("kube"):
            item.add_marker(pytest.mark.nightly)


_logs_kept = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def kube_control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, without controllers: nothing is garbage-collected, and no pod runs. The logs are kept if
    a test fails.
    """
    try:
        kube = ControlPlane()
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)
    with kube:
        yield kube
        if request.session.testsfailed:
            kube.keep_logs = True
            request.config.stash[_logs_kept] = kube.folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if folder := config.stash.get(_logs_kept, None):
        terminalreporter.write_line(f"logs of the control plane: {folder}")
    taken = [
        seconds
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, seconds in report.user_properties
        if name == "processor time"
    ]
    terminalreporter.write_line(f"processor time of {len(taken)} tests: {sum(taken):.0f} s")


@pytest.fixture(scope="session")
def control_plane(kube_control_plane: ControlPlane) -> ControlPlane:
    return kube_control_plane


@pytest.fixture(scope="session")
def kube_options() -> dict[str, bool]:
    """Options of the embedded server. Like the real one here, it runs without controllers."""
    return {"controllers": False, "pods": False}


_numbers = itertools.count(1)


@pytest.fixture
def authors_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory of the test, in which an author's modules are. Those that are imported from it go with it,
    and modules that were imported before are what they were.
    """
    monkeypatch.chdir(tmp_path)
    before, path = dict(sys.modules), [*sys.path]
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - set(before):
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture(scope="session")
def kubeconfig(kube_api: KubeApi) -> Path:
    return kube_api.kubeconfig


@pytest.fixture
async def namespace(kube_client: Client) -> AsyncIterator[str]:
    """A namespace for one test. It is deleted afterwards but stays Terminating, because no namespace controller runs
    here.
    """
    name = f"test-{os.getpid()}-{next(_numbers)}"
    await kube_client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    await kube_client.delete_collection(ConfigMap, name)
    await kube_client.delete(Namespace, name)


InstallCrd = Callable[[Mapping[str, Any]], None]


@pytest.fixture(scope="session")
def install_crd(kube_api: KubeApi) -> InstallCrd:
    """Applies a CustomResourceDefinition manifest and waits until its kind is served."""
    return kube_api.install


@pytest.fixture(scope="session")
def built_go(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Builds the program in a folder with a Go module."""

    def build(module: Path) -> Path:
        go = shutil.which("go")
        if go is None:
            pytest.skip("did not run: there is no Go to build the program with")
        binary = tmp_path_factory.mktemp("go") / module.name
        if subprocess.run([go, "mod", "download"], cwd=module, capture_output=True).returncode:  # noqa: S603
            pytest.skip("did not run: Go cannot get the program's modules")
        built = subprocess.run(  # noqa: S603
            [go, "build", "-o", str(binary), "."], cwd=module, capture_output=True, text=True
        )
        assert built.returncode == 0, built.stderr
        return binary

    return build


@pytest.fixture(scope="session")
def go_sharder() -> Path:
    return _reference_program("KUBESHARD_GO_SHARDER", "sharder")


@pytest.fixture(scope="session")
def go_operator() -> Path:
    return _reference_program("KUBESHARD_GO_OPERATOR", "webhosting-operator")


@pytest.fixture(scope="session")
def go_checksum() -> Path:
    return _reference_program("KUBESHARD_GO_CHECKSUM", "checksum-controller")


@pytest.fixture(scope="session")
def go_measure() -> Path:
    return _reference_program("KUBESHARD_GO_MEASURE", "measure")


@pytest.fixture(scope="session")
def go_manifests() -> Path:
    """The output of `kubectl kustomize config/default` in the Go reference, in a file."""
    named = os.environ.get("KUBESHARD_GO_MANIFESTS")
    if not named:
        pytest.skip(
            "did not run: set KUBESHARD_GO_MANIFESTS to a file with the Go reference's rendered manifests"
        )
    return Path(named)


def _reference_program(variable: str, name: str) -> Path:
    """Returns a program of the Go reference. A variable that is set but wrong is a failure, not a reason to skip."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"did not run: set {variable} to the Go reference's {name} binary")
    if not os.access(named, os.X_OK):
        pytest.fail(f"{variable}={named} is not an executable file", pytrace=False)
    return Path(named)
