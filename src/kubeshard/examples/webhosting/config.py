"""Configuration of the webhosting operator: its file and its environment variables (protocol 9.1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import Struct, field
from kubeshard.examples.webhosting.api import OPERATOR
from kubeshard.examples.webhosting.manifests import NAMESPACE
from kubeshard.examples.webhosting.workload import IngressTLS
from kubeshard.manager.config_file import ComponentConfig, load_config_file

API_VERSION = "config.webhosting.timebertt.dev/v1alpha1"
KIND = "WebhostingOperatorConfig"
DEFAULT_WORKERS = 15

_TRUE = frozenset({"1", "t", "true", "yes", "on"})
_FALSE = frozenset({"0", "f", "false", "no", "off"})


class IngressConfig(Struct):
    """What all Ingresses of websites have in common."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    tls: tuple[IngressTLS, ...] = ()


class OperatorConfig(ComponentConfig):
    """The file, `config.webhosting.timebertt.dev/v1alpha1` WebhostingOperatorConfig."""

    ingress: IngressConfig = field(default_factory=IngressConfig)


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """File and environment together."""

    config: OperatorConfig
    sharded: bool
    """Whether this process is one of several shards of the ring, or the elected one of a singleton."""
    workers: int
    shard_name: str
    namespace: str
    """Where the Lease of the shard or of the leader lives."""
    warnings: tuple[str, ...] = ()


def load_settings(path: str | Path | None, environment: Mapping[str, str]) -> OperatorSettings:
    """Read the file (defaults without one) and `ENABLE_SHARDING`, `LEADER_ELECT`, `WEBSITE_CONCURRENT_SYNCS`,
    `SHARD_NAME`. Raises ConfigurationError naming the field or variable.
    """
    config, unknown = OperatorConfig(), tuple[str, ...]()
    if path is not None:
        config, unknown = load_config_file(path, OperatorConfig, api_version=API_VERSION, kind=KIND)
    election = config.leader_election
    leader_elect = _boolean(environment, "LEADER_ELECT", election.leader_elect)
    sharded = _boolean(environment, "ENABLE_SHARDING", False)
    if sharded and not leader_elect:
        raise ConfigurationError(
            "ENABLE_SHARDING needs the shard's Lease: leave LEADER_ELECT and leaderElection.leaderElect true"
        )
    election = msgspec.structs.replace(
        election,
        leader_elect=leader_elect,
        resource_name=election.resource_name or OPERATOR,
        resource_namespace=election.resource_namespace or NAMESPACE,
    )
    return OperatorSettings(
        config=msgspec.structs.replace(config, leader_election=election),
        sharded=sharded,
        workers=_positive(environment, "WEBSITE_CONCURRENT_SYNCS", DEFAULT_WORKERS),
        shard_name=environment.get("SHARD_NAME", ""),
        namespace=election.resource_namespace,
        warnings=unknown,
    )


def _boolean(environment: Mapping[str, str], name: str, default: bool) -> bool:
    text = environment.get(name, "").strip().lower()
    if not text:
        return default
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise ConfigurationError(f"environment variable {name}={environment[name]!r}: expected true or false")


def _positive(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigurationError(f"environment variable {name}={text!r}: expected a positive number")
