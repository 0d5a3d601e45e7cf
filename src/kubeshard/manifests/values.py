"""What somebody who installs may decide, typed: the values of `kubeshard manifests --set` and of the Helm chart.

Guaranteed: defaults, `--set`, `values.yaml` and `values.schema.json` are made from these classes, so a value that one
of them accepts is accepted by all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
import yaml
from msgspec import Meta

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import Struct, field
from kubeshard.core.patches import apply_merge_patch
from kubeshard.sharding.names import SYSTEM_NAMESPACE
from kubeshard.version import __version__

Quantity = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi)?$")]
DnsLabel = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]

V = TypeVar("V", bound="Values")


class Values(Struct, forbid_unknown_fields=True):
    """Base of all values: a name that nobody knows is a mistake."""


class Amounts(Values):
    cpu: Quantity = "100m"
    memory: Quantity = "256Mi"


class Limits(Values):
    memory: Quantity = "512Mi"


class Resources(Values):
    requests: Amounts = field(default_factory=Amounts)
    limits: Limits = field(default_factory=Limits)
    """No limit of CPU: a throttled webhook keeps users waiting."""


class Off(Values):
    enabled: bool = False


class On(Values):
    enabled: bool = True


Image = Annotated[str, Meta(min_length=1, description="The container image.")]
Replicas = Annotated[int, Meta(ge=1, description="How many pods run; of several, one leads.")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"], Meta(description="From which level on logs are written.")
]
NetworkPolicySwitch = Annotated[
    Off,
    Meta(
        description="A NetworkPolicy: in to webhook and metrics, out to DNS and the API server "
        "(on port 443, 6443, 8443 or 16443)."
    ),
]


ServiceMonitorSwitch = Annotated[
    Off, Meta(description="A ServiceMonitor for the Prometheus operator, and the role to read metrics.")
]
CreateNamespace = Annotated[bool, Meta(description="Whether the namespace is among the objects.")]
ResourcesOfPods = Annotated[Resources, Meta(description="Of each pod.")]


class SharderValues(Values):
    """Of the sharder."""

    image: Image = f"kubeshard:{__version__}"
    replicas: Replicas = 2
    namespace: Annotated[DnsLabel, Meta(description="Where the sharder runs.")] = SYSTEM_NAMESPACE
    create_namespace: CreateNamespace = True
    resources: ResourcesOfPods = field(default_factory=Resources)
    log_level: LogLevel = "info"
    config: Annotated[
        Mapping[str, Any],
        Meta(description="Fields of SharderConfig, merged over those that the manifests need."),
    ] = field(default_factory=dict)
    cert_manager: Annotated[
        Off,
        Meta(
            description="The webhook's certificate from cert-manager; without it the sharder makes its own."
        ),
    ] = field(default_factory=Off)
    policies: Annotated[
        On,
        Meta(description="Admission policies that confine the sharder's account (Kubernetes 1.30 or newer)."),
    ] = field(default_factory=On)
    network_policy: NetworkPolicySwitch = field(default_factory=Off)
    service_monitor: ServiceMonitorSwitch = field(default_factory=Off)


class OperatorValues(Values):
    """Of an operator."""

    image: Image
    replicas: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="How many pods run. Default: 2, or 1 where nothing makes them take turns."),
    ] = None
    namespace: Annotated[DnsLabel | None, Meta(description="Where the operator runs. Default: its name.")] = (
        None
    )
    create_namespace: CreateNamespace = True
    resources: ResourcesOfPods = field(default_factory=Resources)
    log_level: LogLevel = "info"
    network_policy: NetworkPolicySwitch = field(default_factory=Off)
    service_monitor: ServiceMonitorSwitch = field(default_factory=Off)


def chosen(type_: type[V], file: Mapping[str, Any] | None = None, settings: Iterable[str] = ()) -> V:
    """The defaults, over them those of a file, over them settings `KEY=VALUE` with a dotted key and a YAML value.

    Raises ConfigurationError.
    """
    given: Any = dict(file or {})
    for setting in settings:
        given = apply_merge_patch(given, _parsed(setting))
    try:
        return msgspec.convert(given, type_)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        place = where.strip("`").removeprefix("$").removeprefix(".")
        raise ConfigurationError(f"value {place or '(all)'}: {message}") from None


def plain(values: Values) -> dict[str, Any]:
    """As they read in YAML."""
    found: dict[str, Any] = msgspec.to_builtins(values)
    return found


def described(type_: type[Values]) -> Iterator[tuple[str, str]]:
    """Name and description of each value."""
    for each in msgspec.structs.fields(type_):
        yield each.encode_name, _description(each.type)


def _description(type_: Any) -> str:
    texts = [part.description for part in get_args(type_)[1:] if isinstance(part, Meta) and part.description]
    return texts[-1] if get_origin(type_) and texts else ""


def _parsed(setting: str) -> dict[str, Any]:
    key, equals, text = setting.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigurationError(
            f"--set {setting}: say KEY=VALUE, as in replicas=3 or certManager.enabled=true"
        )
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"--set {setting}: the value is not YAML") from error
    for part in reversed(parts):
        value = {part: value}
    return dict(value)
