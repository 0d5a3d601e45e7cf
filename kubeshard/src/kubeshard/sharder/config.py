"""SharderConfig, the sharder's configuration file.

Guaranteed: the reference's files are read with the reference's meaning and defaults; unknown fields are
logged, never fatal; a wrong value raises ConfigurationError naming the field. Common fields and environment
variables: `manager.config_file`.

kubeshard's own fields, which the reference ignores: `sharders` (user names of other sharders that the webhook allows
to move objects during a migration), `shardUsers` (user names of a ring's shards), `webhook.server.clientCAName` (what
API servers authenticate themselves with), `webhook.server.bindAddress` and `webhook.server.reusePort` (several
sharders on one host).

The environment variable `POD_NAMESPACE` is the namespace that the sharder runs in (default: `sharding-system`). Fields
that the file leaves out, and that depend on it, follow it: the Lease of the election, `sharders`, the Service that API
servers call, and the namespaces that rings leave out. In `webhook.config.annotations` and `sharders`,
`$(POD_NAMESPACE)` stands for it. So the file need not mention the namespace, and the manifests can be moved to
another one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.namespaces import KUBE_SYSTEM, NAMESPACE_NAME_LABEL
from kubeshard.core.objects import Struct, field
from kubeshard.core.selectors import InvalidSelector, LabelSelector, LabelSelectorRequirement, Selector
from kubeshard.manager.config_file import ComponentConfig, Duration, load_component
from kubeshard.runtime import environ
from kubeshard.runtime.http_server import parse_bind_address
from kubeshard.sharding.names import (
    CONCURRENT_MOVES,
    MASS_FAILURE_GRACE,
    SHORTEST_DRAIN_TIMEOUT,
    SYNC_PERIOD,
    SYSTEM_NAMESPACE,
    WEBHOOK_PORT,
)

API_VERSION = "config.sharding.timebertt.dev/v1alpha1"
KIND = "SharderConfig"


class SharderControllerConfig(Struct):
    sync_period: Duration = Duration(SYNC_PERIOD)
    """The interval between full resyncs of a ring, whatever happens in between."""
    concurrent_moves: int = CONCURRENT_MOVES
    """The number of objects that a resync of one resource of a ring moves concurrently."""
    mass_failure_grace: Duration = Duration(MASS_FAILURE_GRACE)
    """For how long shards are not given up when many of a ring fail at once; 0: they are given up like any other."""
    drain_timeout: Duration = Duration(0)
    """After how long a shard that holds its Lease, but does not release an object, is evicted; 0: never."""


class ControllersConfig(Struct):
    sharder: SharderControllerConfig = field(default_factory=SharderControllerConfig)


class WebhookServerConfig(Struct):
    cert_dir: str = ""
    cert_name: str = "tls.crt"
    key_name: str = "tls.key"
    client_ca_name: str = msgspec.field(default="", name="clientCAName")
    """A file in the same folder, or an absolute path: the authorities of API servers. Nobody else can then call the
    webhook.
    """
    bind_address: str = f":{WEBHOOK_PORT}"
    """`"0"` disables the webhook in this replica."""
    reuse_port: bool = False
    """Share the port with other processes of this host that set this too."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port; None if the webhook is disabled. Raises ConfigurationError."""
        if self.bind_address == "0":
            return None
        try:
            return parse_bind_address(self.bind_address)
        except ValueError as error:
            raise ConfigurationError(f"field webhook.server.bindAddress: {error}") from None

    @property
    def client_authority(self) -> Path | None:
        return self.directory / self.client_ca_name if self.client_ca_name else None

    @property
    def directory(self) -> Path:
        """The folder of the certificate. Like Go's os.TempDir, it does not check whether the folder exists."""
        temporary = environ.variable("TMPDIR") or "/tmp"  # noqa: S108 - nothing is written there
        return Path(self.cert_dir or Path(temporary, "k8s-webhook-server", "serving-certs"))


class ServiceReference(Struct):
    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(Struct):
    """How the API server reaches the webhook. Without `url` and `service`: the service of the shipped
    manifests.
    """

    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: str | None = msgspec.field(default=None, name="caBundle")


def _all_but_system_namespaces(namespace: str) -> LabelSelector:
    names = LabelSelectorRequirement(
        key=NAMESPACE_NAME_LABEL, operator="NotIn", values=(KUBE_SYSTEM, namespace)
    )
    return LabelSelector(match_expressions=(names,))


def _account(namespace: str) -> str:
    return f"system:serviceaccount:{namespace}:sharder"


_NAMESPACES = _all_but_system_namespaces(SYSTEM_NAMESPACE)
_SHARDERS = (_account(SYSTEM_NAMESPACE),)
"""Defaults. A field that is this very object was left out of the file."""


class WebhookConfig(Struct):
    """Settings for the webhook configurations of rings."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    client_config: WebhookClientConfig = field(default_factory=WebhookClientConfig)
    namespace_selector: LabelSelector = _NAMESPACES


class WebhookSettings(Struct):
    server: WebhookServerConfig = field(default_factory=WebhookServerConfig)
    config: WebhookConfig = field(default_factory=WebhookConfig)


class SharderConfig(ComponentConfig):
    controller: ControllersConfig = field(default_factory=ControllersConfig)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    sharders: tuple[str, ...] = _SHARDERS
    """User names that may move objects by removing the shard label: this sharder, and others during a migration."""

    shard_users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The user names of shards by ring, if shards are not named after their pods: nobody else may then
    acknowledge a drain. For rings without any see `admission`.
    """

    @property
    def system_namespaces(self) -> tuple[str, ...]:
        """Namespaces that a ring has to select twice: in its selector and by an annotation."""
        return tuple(dict.fromkeys((KUBE_SYSTEM, self.election_namespace)))

    @property
    def election_name(self) -> str:
        return self.leader_election.resource_name or "sharder"

    @property
    def election_namespace(self) -> str:
        return self.leader_election.resource_namespace or SYSTEM_NAMESPACE


def load_sharder_config(
    path: str | Path | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[SharderConfig, tuple[str, ...]]:
    """The configuration of the file, or the defaults without one, and a warning for each unknown field in
    it. Raises ConfigurationError.
    """
    config, unknown = load_component(
        path, SharderConfig, api_version=API_VERSION, kind=KIND, environment=environ
    )
    return validated(_placed(config, environ.get("POD_NAMESPACE") or SYSTEM_NAMESPACE)), unknown


def _placed(config: SharderConfig, namespace: str) -> SharderConfig:
    """The configuration of a sharder in this namespace."""
    replace, webhook, election = msgspec.structs.replace, config.webhook.config, config.leader_election
    called = webhook.client_config
    if called.url is None and called.service is None:
        called = replace(called, service=ServiceReference(namespace=namespace, name="sharder"))
    selector = webhook.namespace_selector
    annotations = {
        key: value.replace("$(POD_NAMESPACE)", namespace) for key, value in webhook.annotations.items()
    }
    webhook = replace(
        webhook,
        annotations=annotations,
        client_config=called,
        namespace_selector=_all_but_system_namespaces(namespace) if selector is _NAMESPACES else selector,
    )
    return replace(
        config,
        leader_election=replace(election, resource_namespace=election.resource_namespace or namespace),
        webhook=replace(config.webhook, config=webhook),
        sharders=(
            (_account(namespace),)
            if config.sharders is _SHARDERS
            else tuple(user.replace("$(POD_NAMESPACE)", namespace) for user in config.sharders)
        ),
    )


def validated(config: SharderConfig) -> SharderConfig:
    """The configuration. Raises ConfigurationError for invalid values."""
    sharder = config.controller.sharder
    problems: dict[str, Any] = {
        "controller.sharder.concurrentMoves: must be positive": sharder.concurrent_moves < 1,
        "controller.sharder.syncPeriod: must be positive": sharder.sync_period <= 0,
        "controller.sharder.massFailureGrace: must not be negative": sharder.mass_failure_grace < 0,
        f"controller.sharder.drainTimeout: must be 0s, or {SHORTEST_DRAIN_TIMEOUT:.0f}s or more": bool(
            sharder.drain_timeout
        )
        and sharder.drain_timeout < SHORTEST_DRAIN_TIMEOUT,
        "webhook.config.clientConfig: give url or service, not both": config.webhook.config.client_config.url
        and config.webhook.config.client_config.service,
    }
    for problem, found in problems.items():
        if found:
            raise ConfigurationError(f"field {problem}")
    _ = config.webhook.server.address
    try:
        Selector.from_label_selector(config.webhook.config.namespace_selector)
    except InvalidSelector as error:
        raise ConfigurationError(f"field webhook.config.namespaceSelector: {error}") from None
    return config
