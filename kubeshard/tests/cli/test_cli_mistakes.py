"""A user's mistake ends the real command with one line on standard error that says what to do, without a traceback.

Mistakes that need an API server are in `kubeshard/tests/kube/test_cli_kube.py`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

SHARDER = "apiVersion: config.sharding.timebertt.dev/v1alpha1\nkind: SharderConfig\n"
QUIET = 'metrics: {bindAddress: "0"}\nhealth: {bindAddress: "0"}\nwebhook: {server: {bindAddress: "0"}}\n'
KUBECONFIG = """
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: x}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
sys.argv[0] = "kubeshard"
from kubeshard.cli import main
main()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The command's home and working directory; the server in its kubeconfig `away` does not respond."""
    (tmp_path / "away").write_text(KUBECONFIG)
    return tmp_path


def kubeshard(
    home: Path,
    *arguments: str,
    module: str = "kubeshard",
    missing: tuple[str, ...] = (),
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
    given: Mapping[str, str] = {**kept, "HOME": str(home), **environment}
    program = ["-c", WITHOUT.format(missing=missing)] if missing else ["-m", module]
    return subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=home,
        env=given,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_an_interrupt_during_imports_ends_without_a_stack_trace(home: Path) -> None:
    program = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'kubeshard.cli.rbac': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from kubeshard.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=home, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_no_cluster(home: Path) -> None:
    done = kubeshard(home, "samples", "apply", module="kubeshard_lab.examples.webhosting")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: no cluster configured: pass a kubeconfig, set KUBECONFIG, create ~/.kube/config, or run in a pod\n"
    )


def test_a_kubeconfig_that_is_missing_or_broken(home: Path) -> None:
    done = kubeshard(home, "sharder", "--kubeconfig", "nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: nowhere: cannot read the kubeconfig: No such file")
    (home / "broken").write_text("a: [")
    done = kubeshard(
        home, "samples", "apply", module="kubeshard_lab.examples.webhosting", KUBECONFIG="broken"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: broken: not YAML on line")
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_cannot_be_reached(home: Path) -> None:
    done = kubeshard(home, "samples", "apply", module="kubeshard_lab.examples.webhosting", KUBECONFIG="away")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: cannot reach the cluster (GET /version: ")
    assert done.stderr.endswith("in the kubeconfig, the network and the proxy\n")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "metrics: {bindAddress: 8080}",
            "Error: config.yaml: field metrics.bindAddress: Expected `str`, got `int`\n",
        ),
        ("metrics: [", "Error: config.yaml: not YAML on line"),
        (
            "leaderElection: {leaseDuration: soon}",
            "Error: config.yaml: field leaderElection.leaseDuration: 'soon'",
        ),
    ],
)
def test_a_wrong_field_in_a_configuration_file(home: Path, body: str, line: str) -> None:
    (home / "config.yaml").write_text(SHARDER + body)
    done = kubeshard(home, "sharder", "--config", "config.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith(line)


def test_an_unknown_field_is_a_warning_and_with_strict_config_a_mistake(home: Path) -> None:
    (home / "config.yaml").write_text(SHARDER + QUIET + "webhok: {}\n")
    done = kubeshard(home, "sharder", "--config", "config.yaml")
    warning, error = done.stderr.splitlines()
    assert (
        'WARNING kubeshard.config: The configuration file has a mistake problem="unknown field webhok'
        in warning
    )
    assert error.startswith("Error: no cluster configured")
    done = kubeshard(home, "sharder", "--config", "config.yaml", "--strict-config")
    assert done.returncode == 2
    assert done.stderr == (
        "Error: the configuration file has mistakes: unknown field webhok (did you mean webhook?)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--controllerring", ""], "Error: Invalid value for --controllerring: must not be empty"),
        (["--namespace", "A b"], "Error: Invalid value for --namespace: 'A b' is not a valid namespace name"),
        ([], "Error: outside of a pod give --lease-namespace, where the shard's Lease lives"),
        (
            ["--lease-namespace", "default", "--shard-name", "A_b"],
            "Error: invalid shard name 'A_b': it is the name of a Lease",
        ),
    ],
)
def test_names_that_cannot_work(home: Path, arguments: list[str], line: str) -> None:
    done = kubeshard(home, *arguments, module="kubeshard_lab.examples.checksum", KUBECONFIG="away")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(line)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_port_that_is_in_use(home: Path, taken_port: int) -> None:
    (home / "config.yaml").write_text(
        f'{SHARDER}insecureMetrics: true\nmetrics: {{bindAddress: "127.0.0.1:{taken_port}"}}\n'
        'health: {bindAddress: "0"}\nwebhook: {server: {bindAddress: "0"}}\n'
    )
    done = kubeshard(home, "sharder", "--config", "config.yaml", KUBECONFIG="away")
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[-1]
        == f"Error: metrics page: cannot listen on 127.0.0.1:{taken_port}: the address is in use by another process; "
        "choose another address"
    )


def test_certificate_files_that_are_missing(home: Path) -> None:
    (home / "config.yaml").write_text(
        f'{SHARDER}metrics: {{bindAddress: "0"}}\nhealth: {{bindAddress: "0"}}\n'
        'webhook: {server: {certDir: certificates, bindAddress: "127.0.0.1:0"}}\n'
    )
    done = kubeshard(home, "sharder", "--config", "config.yaml", KUBECONFIG="away")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: webhook certificate certificates/tls.crt: No such file or directory; "
        "put certificate and key there, or configure others"
    )


@pytest.mark.parametrize(
    ("missing", "arguments", "advice"),
    [
        (
            ("kubeshard_apiserver",),
            ("demo",),
            "the demo needs the package kubeshard-apiserver: in a clone of kubeshard, pip install './kubeshard[lab]'",
        ),
        (
            ("kubeshard_apiserver",),
            ("apiserver", "--port", "0"),
            "pip install './kubeshard[apiserver]' ./apiserver",
        ),
        (("kubeshard_lab",), ("simulate", "faults"), "pip install './kubeshard[lab]' ./apiserver ./lab"),
        (
            ("rich",),
            ("demo",),
            "the demo needs the package rich: in a clone of kubeshard, pip install './kubeshard[lab]'",
        ),
    ],
)
def test_an_extra_that_is_missing(
    home: Path, missing: tuple[str, ...], arguments: tuple[str, ...], advice: str
) -> None:
    done = kubeshard(home, *arguments, missing=missing, KUBECONFIG="away")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert advice in done.stderr.splitlines()[-1]


def test_a_folder_for_logs_that_is_in_use(home: Path) -> None:
    done = kubeshard(home, "demo", "--logs", str(home))
    assert done.returncode == 2
    assert done.stderr == f"Error: --logs {home}: the folder is not empty; name a new one\n"


def test_help_needs_no_extra(home: Path) -> None:
    missing = ("rich", "kubeshard_apiserver", "cryptography", "httptools", "uvloop")
    for command in (["--help"], ["sharder", "--help"], ["demo", "--help"]):
        done = kubeshard(home, *command, missing=missing)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: kubeshard ")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
def test_an_output_that_cannot_be_written_ends_a_command_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "kubeshard", "manifests", "sharder"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, "Error: cannot write: No space left on device\n")
