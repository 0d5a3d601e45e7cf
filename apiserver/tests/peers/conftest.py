"""What the peers have in common: a kind to work on, and to wait for what another process or thread does."""

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
    """The kind Greeting is served; its group."""
    kube_api.install(GREETING)
    return str(GREETING["spec"]["group"])


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Asks until the answer is true, and returns it."""

    def wait(ask: Callable[[], Any], within: float = 20.0) -> Any:
        deadline = time.monotonic() + within
        while not (answer := ask()):
            assert time.monotonic() < deadline, f"it did not happen within {within:.0f} s"
            time.sleep(0.02)
        return answer

    return wait
