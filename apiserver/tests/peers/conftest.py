"""Shared by the tests of other clients: a kind to work on, and waiting for other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeshard_apiserver.testing import KubeApi

Eventually = Callable[[Callable[[], Any]], Any]

GREETING = yaml.safe_load((Path(__file__).parent / "greeting.yaml").read_text())


@pytest.fixture(scope="session")
def greetings(kube_api: KubeApi) -> str:
    """Serves the kind Greeting; returns its group."""
    kube_api.install(GREETING)
    return str(GREETING["spec"]["group"])


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Repeats a question until the answer is true, and returns the answer."""

    def wait(ask: Callable[[], Any], within: float = 20.0) -> Any:
        deadline = time.monotonic() + within
        while not (answer := ask()):
            assert time.monotonic() < deadline, f"it did not happen within {within:.0f} s"
            time.sleep(0.02)
        return answer

    return wait
