"""Programs that never outlive their parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child, is_running
from kubeshard_apiserver.testing.control_plane import free_port

pytestmark = pytest.mark.system

PARENT = """
import sys
from pathlib import Path
from kubeshard_apiserver.testing.child import Child
print(Child("sleeper", ["sleep", "60"], Path(sys.argv[1])).pid, flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the promise is the Linux kernel's")
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path / "log"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
    wait_until(lambda: not is_running(child), 10, "the child's end")


def test_a_child_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    child = Child(
        "deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], tmp_path / "log"
    )
    wait_until(lambda: child.tail() == "ready", 10, "the trap is set")
    assert child.stop(grace=0.1) == -signal.SIGKILL


def test_what_a_child_says_is_in_its_log_whatever_it_says(tmp_path: Path) -> None:
    child = Child("speaker", ["sh", "-c", r"printf 'out\n\377'; echo err >&2; exit 3"], tmp_path / "log")
    wait_until(lambda: not child.running, 10, "its end")
    assert child.exit_code == 3
    assert child.tail(1) == "\N{REPLACEMENT CHARACTER}err"


def test_a_free_port_is_given_once() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50


def test_waiting_in_vain_names_what_was_waited_for() -> None:
    with pytest.raises(AssertionError, match="the moon did not hold within 0 s"):
        wait_until(lambda: False, 0.01, "the moon")
