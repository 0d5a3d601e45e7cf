"""Temporary folders, and when they are removed."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from kubeshard.cli.program import main
from kubeshard.core.errors import ConfigurationError
from kubeshard.sharder.config import WebhookServerConfig
from kubeshard_apiserver.testing.folders import TemporaryFolder

HOLD = """
from kubeshard_apiserver.testing.folders import TemporaryFolder
folder = TemporaryFolder("kept-")
(folder.path / "file").touch()
print(folder.path, flush=True)
input()
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def nowhere(monkeypatch):
    """There is no folder for temporary files: the root is read-only, and there is no /tmp."""

    def none():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "gettempdir", none)


@pytest.mark.system
@pytest.mark.regression
def test_what_a_killed_process_left_is_gone_with_the_next_start(temporary):
    environment = {**os.environ, "TMPDIR": str(temporary)}
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    path = held.stdout.readline().strip()
    first = TemporaryFolder("kept-")
    assert os.path.exists(f"{path}/file")  # it is in use
    held.send_signal(signal.SIGKILL)
    held.communicate()
    second = TemporaryFolder("kept-")
    assert {str(first.path), str(second.path)} == {str(each) for each in temporary.iterdir()}


@pytest.mark.regression
def test_nothing_stays_but_what_is_kept(temporary):
    removed, kept = TemporaryFolder("a-"), TemporaryFolder("a-")
    removed.remove()
    kept.keep()
    TemporaryFolder("a-").remove()
    assert list(temporary.iterdir()) == [kept.path]
    assert not list(kept.path.iterdir())


@pytest.mark.regression
def test_without_a_folder_for_temporary_files_it_says_what_to_set(nowhere):
    with pytest.raises(ConfigurationError, match="set TMPDIR"):
        TemporaryFolder("a-")


@pytest.mark.regression
def test_the_demo_says_what_to_set_in_one_line(nowhere, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubeshard", "demo"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "set TMPDIR" in line


@pytest.mark.regression
def test_the_sharder_looks_for_certificates_where_go_does_without_a_temporary_folder(nowhere, monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    assert str(WebhookServerConfig().directory) == "/tmp/k8s-webhook-server/serving-certs"
