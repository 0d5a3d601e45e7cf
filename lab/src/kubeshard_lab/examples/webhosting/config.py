"""Configuration of the webhosting operator: its file and its environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kubeshard import Struct, field
from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.config_file import ComponentConfig, boolean, load_component
from kubeshard.runtime.environ import pod_namespace
from kubeshard.shard.sharding import MODES, Mode
from kubeshard_lab.examples.webhosting.api import NAMESPACE
from kubeshard_lab.examples.webhosting.workload import IngressTLS

API_VERSION = "config.webhosting.timebertt.dev/v1alpha1"
KIND = "WebhostingOperatorConfig"
DEFAULT_WORKERS = 15


class IngressConfig(Struct):
    annotations: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    tls: tuple[IngressTLS, ...] = ()


class OperatorConfig(ComponentConfig):
    """The configuration file, `config.webhosting.timebertt.dev/v1alpha1` WebhostingOperatorConfig."""

    ingress: IngressConfig = field(default_factory=IngressConfig)


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    config: OperatorConfig
    sharding: Mode | None
    """This process's role in the ring; None means a singleton with leader election."""
    ranges: bool = False
    """Whether the ring shares out hash ranges, in place of labels."""
    workers: int
    shard_name: str
    """The shard's name; `""` means the pod's or the host's name."""
    namespace: str
    """The namespace of the shard's or the leader's Lease: the file's, the pod's, or that of the shipped manifests."""


def load_settings(
    path: str | Path | None, environment: Mapping[str, str]
) -> tuple[OperatorSettings, tuple[str, ...]]:
    """Reads the file (defaults without one) and the environment variables `ENABLE_SHARDING`, `WEBSITE_CONCURRENT_SYNCS`
    and `SHARD_NAME`, besides those that all components know (`manager.config_file`) and those of the Go project's first
    generation: `SHARDING_ENABLED`, `SHARD_MODE`, `SHARD_ID`. Also returns a sentence for each unknown field. Raises
    ConfigurationError, which names the field or variable.
    """
    config, unknown = load_component(
        path, OperatorConfig, api_version=API_VERSION, kind=KIND, environment=environment
    )
    sharding = _sharding(environment)
    if sharding and not config.leader_election.leader_elect:
        raise ConfigurationError(
            "ENABLE_SHARDING needs the shard's Lease: leave LEADER_ELECT and leaderElection.leaderElect true"
        )
    settings = OperatorSettings(
        config=config,
        sharding=sharding,
        workers=_positive(environment, "WEBSITE_CONCURRENT_SYNCS", DEFAULT_WORKERS),
        shard_name=environment.get("SHARD_NAME") or environment.get("SHARD_ID", ""),
        namespace=config.leader_election.resource_namespace or pod_namespace() or NAMESPACE,
    )
    return settings, unknown


def _sharding(environment: Mapping[str, str]) -> Mode | None:
    """`ENABLE_SHARDING` implies a sharder service and `SHARDING_ENABLED` none, unless `SHARD_MODE` says otherwise."""
    served = boolean(environment, "ENABLE_SHARDING", False)
    if not served and not boolean(environment, "SHARDING_ENABLED", False):
        return None
    given = environment.get("SHARD_MODE", "").strip()
    for mode in MODES:
        if given == mode:
            return mode
    if given:
        raise ConfigurationError(f"environment variable SHARD_MODE={given!r}: expected {', '.join(MODES)}")
    return "shard" if served else "both"


def _positive(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigurationError(f"environment variable {name}={text!r}: expected a positive number")
