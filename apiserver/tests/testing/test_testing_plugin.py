"""The pytest plugin in a user's project: its option, its markers, and its cost for those who do not use it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeshard_apiserver.testing import EmbeddedApi, KubeApi

pytestmark = pytest.mark.system

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs pytest on a user's test module and returns its output."""

    def running(tests: str, *arguments: str, passes: bool = True) -> str:
        (tmp_path / "test_user.py").write_text(tests)
        (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *arguments,
        ]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path[1:]])},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode == 0) is passes, done.stdout + done.stderr
        return done.stdout

    return running


def test_who_does_not_use_it_imports_nothing_of_kubeshard_but_the_plugin(run: Run) -> None:
    run(
        """
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.startswith("kubeshard")}
            assert ours == {"kubeshard_apiserver" + part for part in ("", ".testing", ".testing.plugin")}
            assert not {"msgspec", "aiohttp", "httptools", "cryptography"} & sys.modules.keys()
    """.replace("\n        ", "\n")
    )


def test_the_server_is_the_embedded_one_unless_the_option_says_otherwise(run: Run) -> None:
    tests = "def test_a(kube_namespace):\n    pass\n\n\ndef test_b():\n    pass\n"

    def collected(*arguments: str) -> list[str]:
        lines = run(tests, "--collect-only", *arguments).splitlines()
        return [line.partition("::")[2] for line in lines if "::" in line]

    assert collected() == ["test_a", "test_b"]
    assert collected("--kube=real") == ["test_a[real]", "test_b"]
    assert collected("--kube=both") == ["test_a[embedded]", "test_a[real]", "test_b"]
    assert collected("--kube=both", "-m", "not kube") == ["test_a[embedded]", "test_b"]
    assert collected("--kube=both", "-m", "kube") == ["test_a[real]"]


def test_the_client_serves_tests_of_pytest_asyncio_in_its_strict_mode(run: Run) -> None:
    said = run(
        "import pytest\n"
        "from kubeshard.core import Namespace\n\n\n"
        "@pytest.mark.asyncio\n"
        "async def test_a(kube_client, kube_namespace):\n"
        "    assert (await kube_client.get(Namespace, kube_namespace)).metadata.name == kube_namespace\n"
    )
    assert "1 passed" in said


def test_an_async_test_that_nothing_runs_says_what_to_set(run: Run) -> None:
    said = run("async def test_a(kube_memory):\n    pass\n", passes=False)
    assert 'nothing runs async tests here: set asyncio_mode = "auto" in [tool.pytest.ini_options]' in said
    assert "1 passed" in run("async def test_a(kube_memory):\n    pass\n", "-o", "asyncio_mode=auto")


def test_every_test_has_a_namespace_of_its_own_and_it_goes_after_the_test(run: Run) -> None:
    said = run(
        "import time\n"
        "from kubeshard.core import Namespace, NotFound\n\n"
        "names = []\n\n\n"
        "def test_a(kube_namespace):\n"
        "    names.append(kube_namespace)\n\n\n"
        "def test_b(kube_api, kube_namespace):\n"
        "    assert kube_namespace not in names\n"
        "    deadline = time.monotonic() + 20\n"
        "    while time.monotonic() < deadline:\n"
        "        try:\n"
        "            kube_api.call(lambda client: client.get(Namespace, names[0]))\n"
        "        except NotFound:\n"
        "            return\n"
        "    raise AssertionError\n"
    )
    assert "2 passed" in said


def test_a_server_that_was_stopped_has_left_nothing() -> None:
    import threading

    before = set(threading.enumerate())
    api: KubeApi = EmbeddedApi()
    assert api.kubeconfig.stat().st_mode & 0o77 == 0
    assert api.new_namespace().startswith("test-")
    its_own = set(threading.enumerate()) - before  # servers of other tests may start threads meanwhile
    api.stop()
    assert its_own
    assert not any(thread.is_alive() for thread in its_own)
    assert not api.kubeconfig.parent.exists()
