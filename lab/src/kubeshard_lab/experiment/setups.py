"""What is measured: which programs run, as how many processes, with which configuration.

| set-up | processes |
|---|---|
| `singleton` | one instance of the webhosting operator, elected, without sharding |
| `in-manager` | instances of the operator, one of which is elected to be the sharder as well |
| `ranges` | the same, by hash ranges in place of labels |
| `external` | instances of the operator, and two sharders |

Either role can be taken by the Go project's program. Its operator takes its name from the host and its namespace from a
pod's service account, so it runs in namespaces (of Linux) that fake both; its sharder listens on a fixed port, so there
is only one.
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.config_file import election_document
from kubeshard.runtime.clock import Clock
from kubeshard.sharder import config as sharder_config
from kubeshard.webhook.selfsigned import renewed
from kubeshard_apiserver.testing.child import as_pod
from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.examples.webhosting import config as operator_config
from kubeshard_lab.examples.webhosting.api import NAMESPACE

Kind = Literal["singleton", "in-manager", "ranges", "external"]
KINDS: tuple[Kind, ...] = get_args(Kind)

GO_WEBHOOK_PORT = 9443
SHARDERS = 2
_OWN_NAMESPACE = "default"
"""Where the Leases of an author's operator are."""
MODES: Mapping[Kind, Literal["off", "both", "shard"]] = {
    "singleton": "off",
    "in-manager": "both",
    "ranges": "both",
    "external": "shard",
}
"""What an operator is in each set-up."""


class Launch(NamedTuple):
    name: str
    role: str
    command: Sequence[str]
    environment: Mapping[str, str]
    metrics: str = ""
    """The URL of its metrics; `""` if it has none that can be read directly."""
    restart: bool = True


class Watched(NamedTuple):
    """A process that somebody else started and is to be watched."""

    name: str
    role: str
    pid: int


class Setup(NamedTuple):
    kind: Kind
    instances: int
    workers: int
    operator: Path | None = None
    """The Go project's program; None is kubeshard's."""
    sharder: Path | None = None
    own: str = ""
    """An author's operator instead of the webhosting operator: `MODULE:MANAGER`."""

    @property
    def program(self) -> str:
        """For people: kubeshard, go, or sharder and operator apart; an author's operator by its name."""
        if self.own:
            return self.own
        operator = "go" if self.operator else "kubeshard"
        sharder = "go" if self.sharder else "kubeshard"
        return operator if self.kind != "external" or operator == sharder else f"{sharder}+{operator}"

    @property
    def feature_gates(self) -> Sequence[str]:
        """Of the API server. A shard by ranges receives its share only, as it does by default as of Kubernetes 1.38."""
        return (SHARDED_LIST_AND_WATCH,) if self.kind == "ranges" else ()

    def check(self) -> None:
        """Raises ConfigurationError if it cannot be run."""
        if self.kind == "singleton" and self.instances != 1:
            raise ConfigurationError("--setup singleton has one instance: leave out --instances")
        if MODES[self.kind] == "both" and self.operator:
            raise ConfigurationError(
                f"--setup {self.kind} needs kubeshard's operator: the Go project's has no sharder any more"
            )
        for program in (self.operator, self.sharder):
            if program and not program.is_file():
                raise ConfigurationError(f"{program} does not exist")
        if self.operator and self.kind != "singleton" and shutil.which("unshare") is None:
            raise ConfigurationError(
                "the Go operator takes its shard's name from the host: install unshare(1)"
            )


class Programs:
    """Makes the processes' launches; each operator gets a name of its own, as a pod does. `user`: the one of the
    kubeconfig, which the sharders are told is theirs, so that no webhook is called for what they move.
    """

    def __init__(
        self, setup: Setup, kubeconfig: Path, folder: Path, lease_seconds: float, clock: Clock, user: str = ""
    ) -> None:
        self.setup = setup
        self._user = user
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._numbers = itertools.count(1)
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._webhook_port = GO_WEBHOOK_PORT if setup.sharder else free_port()
        folder.mkdir(parents=True, exist_ok=True)

    def operators(self) -> Sequence[Launch]:
        return [self.operator() for _ in range(self.setup.instances)]

    def operator(self) -> Launch:
        name = f"operator-{next(self._numbers)}"
        setup, port = self.setup, free_port()
        if setup.own:
            return self._own(name, port)
        config = config_file(self._folder, name, operator_config, self._common(port, name, setup.operator))
        environment = {"WEBSITE_CONCURRENT_SYNCS": str(setup.workers)}
        if setup.operator is None:
            command = [*_WEBHOSTING, "operator", "--config", config, "--shard-name", name]
            command += ["--sharding", MODES[setup.kind]]
            command += ["--delivery", "ranges"] if setup.kind == "ranges" else []
        elif setup.kind == "singleton":
            command = [str(setup.operator), "--config", config]
        else:
            command = [*as_pod(name, NAMESPACE), str(setup.operator), "--config", config]
            environment["ENABLE_SHARDING"] = "true"
        return self._launch(name, "operator", command, environment, port, setup.operator)

    def _own(self, name: str, port: int) -> Launch:
        command = [*_KUBESHARD, "run", self.setup.own, "--kubeconfig", str(self._kubeconfig)]
        command += ["--metrics-address", f"127.0.0.1:{port}", "--health-address", "0"]
        if self.setup.kind != "singleton":
            command = [*as_pod(name, _OWN_NAMESPACE), *command]
        return self._launch(name, "operator", command, {}, port, None)

    def sharders(self) -> Sequence[Launch]:
        if self.setup.kind != "external":
            return []
        program = self.setup.sharder
        return [self._sharder(f"sharder-{number + 1}") for number in range(1 if program else SHARDERS)]

    def _sharder(self, name: str) -> Launch:
        program, port = self.setup.sharder, free_port()
        address = f"127.0.0.1:{self._webhook_port}"
        if program:
            server, client = self._certificate(address)
        else:
            server, client = shared_webhook(address)
        fields = {
            **self._common(port, name, program),
            "webhook": {"server": server, "config": {"clientConfig": client}},
        }
        if self._user and not program:
            fields["sharders"] = [self._user]
        command = [str(program)] if program else [*_KUBESHARD, "sharder"]
        command += ["--config", config_file(self._folder, name, sharder_config, fields)]
        return self._launch(name, "sharder", command, {}, port, program)

    def _certificate(self, address: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The parts of the configuration with a certificate of our own, which the Go program does not make."""
        identity = renewed(None, ["127.0.0.1"], self._clock.wall())
        folder = self._folder / "certificates"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "tls.crt").write_bytes(identity.serving.certificate)
        (folder / "tls.key").write_bytes(identity.serving.private_key)
        authority = base64.b64encode(identity.bundle).decode()
        return (
            {"certDir": str(folder), "bindAddress": address},
            {"url": f"https://{address}/", "caBundle": authority},
        )

    def _common(self, port: int, name: str, program: Path | None) -> Mapping[str, Any]:
        election = election_document(self._lease_seconds)
        common = {
            "health": {"bindAddress": "0"},
            "metrics": {"bindAddress": f"127.0.0.1:{port}"},
            "leaderElection": election,
        }
        if program is None:
            return {**common, "insecureMetrics": True, "leaderElection": {**election, "instance": name}}
        return common

    def _launch(
        self,
        name: str,
        role: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        port: int,
        program: Path | None,
    ) -> Launch:
        common = {"KUBECONFIG": str(self._kubeconfig), "PYTHONUNBUFFERED": "1", "DISABLE_HTTP2": "true"}
        metrics = f"{'https' if program else 'http'}://127.0.0.1:{port}/metrics"
        return Launch(name, role, command, {**common, **environment}, metrics)


def shared_webhook(address: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Server and client configuration of sharders that share a port, as replicas share a Service."""
    return {"bindAddress": address, "reusePort": True}, {"url": f"https://{address}/"}


def config_file(folder: Path, name: str, module: Any, fields: Mapping[str, Any]) -> str:
    """Writes the configuration of a program, whose kind is that of the module, and returns the path."""
    file = folder / f"{name}.json"
    document = {"apiVersion": module.API_VERSION, "kind": module.KIND, **fields}
    file.write_text(json.dumps(document, indent=1))
    return str(file)


_KUBESHARD = (sys.executable, "-m", "kubeshard")
_WEBHOSTING = (sys.executable, "-m", "kubeshard_lab.examples.webhosting")
