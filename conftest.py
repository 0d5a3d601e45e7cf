"""Fixtures of both distributions' tests, on the API servers of the plugin (`kubeshard_apiserver.testing.plugin`): every
test that uses them runs on the embedded one and, marked `kube`, on a real one. Each server is started by the first test
that needs it and serves the whole session.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

import kubeshard
import kubeshard_apiserver
from kubeshard.core.errors import ConfigurationError
from kubeshard.testing.control_plane import ControlPlane

# A slow machine is not a bug in the code under test. During development, every run uses the same few examples; before a
# change lands, many new ones.
settings.register_profile("development", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("ci", deadline=None, max_examples=100, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "development"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs with SIGINT ignored. The programs under test would inherit that and ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Programs that tests start run the same code as the tests, even if another checkout is installed. A test that gives its
# program another environment passes this on.
_CODE = [str(Path(package.__file__).parents[1]) for package in (kubeshard, kubeshard_apiserver)]
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
    "tests/e2e",
    "tests/install",
    "tests/kube",
    "tests/interop",
    "apiserver/tests/kubectl",
    "apiserver/tests/peers",
)
"""Folders whose tests all have the marker `system`."""

_may_start_programs = True


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event in PROGRAMS and not _may_start_programs and arguments[0] not in OF_LIBRARIES:
        raise AssertionError("a test that starts a program is marked `system` (docs/testing.md)")


sys.addaudithook(_audit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _may_start_programs
    _may_start_programs = any(mark.name in OUTSIDE for mark in item.iter_markers())
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
    """One more than there are processors, because some tests wait for programs, sockets or threads."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (here or 1) + 1


class OneReader(LoadFileScheduling):
    """Runs the tests of a file in one process, and so all those that read the trees of all modules."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "tests/house" if file.startswith("tests/house/") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return OneReader(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.relative_to(config.rootpath).as_posix() in SYSTEM:
            item.add_marker(pytest.mark.system)


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


@pytest.fixture(scope="session")
def control_plane(kube_control_plane: ControlPlane) -> ControlPlane:
    return kube_control_plane


@pytest.fixture(scope="session")
def kube_options() -> dict[str, bool]:
    """Options of the embedded server. Like the real one here, it runs without controllers."""
    return {"controllers": False, "pods": False}
