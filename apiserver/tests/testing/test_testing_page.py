"""The page for operator authors: its examples form a test module that passes unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

PAGE = Path(__file__).parents[3] / "docs" / "testing-your-operator.md"
CONFIGURATION = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project with the examples of the page in order."""
    official, handlers, *others, without = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (tmp_path / "backups.py").write_text(handlers)
    (tmp_path / "test_examples.py").write_text("\n\n".join((official, *others)))
    (tmp_path / "without_pytest.py").write_text(without)
    (tmp_path / "pytest.ini").write_text(CONFIGURATION)
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )


def test_its_examples_pass(project: Path) -> None:
    done = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_examples.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


@pytest.mark.kube
def test_its_examples_pass_on_both_servers(project: Path) -> None:
    done = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--kube=both", "test_examples.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout


def test_the_server_without_pytest_gives_a_kubeconfig(project: Path) -> None:
    done = run(project, "without_pytest.py")
    assert done.returncode == 0, done.stderr
    assert "https://127.0.0.1:" in done.stdout
    assert "current-context" in done.stdout
