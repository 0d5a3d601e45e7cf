"""Fixtures of both distributions' tests, on the API servers of the plugin (`kubeshard_apiserver.testing.plugin`):
every test that uses them runs on the embedded one, and, marked `kube`, on a real one. Each is started by the
first test that needs it and serves the whole session.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from kubeshard.core.errors import ConfigurationError
from kubeshard.testing.control_plane import ControlPlane

# A slow machine is no mistake of the code under test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and the programs under test would inherit it and be deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


_logs_kept = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def kube_control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, without controllers: nothing is garbage-collected, no pod runs. The logs stay
    when a test failed.
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
    """The embedded server like the real one here: nothing beside it."""
    return {"controllers": False, "pods": False}
