"""The choices at installation, typed: the values of `kubeshard manifests --set` and of the Helm chart.

Guaranteed: defaults, `--set`, `values.yaml` and `values.schema.json` are generated from these classes, so a value that
one of them accepts is accepted by all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import field
from kubeshard.core.patches import apply_merge_patch
from kubeshard.core.yaml_input import Unreadable, documents_in
from kubeshard.manifests.pod_values import (
    CIDR,
    DNS_LABEL,
    IMAGE,
    QUANTITY,
    DnsLabel,
    DnsName,
    ImageParts,
    Off,
    On,
    PodValues,
    Ports,
    SpreadConstraint,
    Strategy,
    Values,
)
from kubeshard.sharding.names import APP_LABEL, APP_NAME, SYSTEM_NAMESPACE
from kubeshard.version import __version__

V = TypeVar("V", bound="Values")

HOURS = r"^[1-9][0-9]*h$"
SEMANTIC_VERSION = r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"


class Issuer(Values):
    """`create` makes one that signs with the certificate's own key; otherwise it has to exist."""

    create: bool = True
    name: DnsName = "selfsigned"
    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"
    group: DnsName = "cert-manager.io"


class CertManager(Off):
    issuer: Issuer = field(default_factory=Issuer)
    duration: Annotated[str, Meta(pattern=HOURS)] = "2160h"
    renew_before: Annotated[str, Meta(pattern=HOURS)] = "720h"


class Policies(On):
    pods: bool = False
    """Whether the sharder may register its webhook for pods, for rings over pods."""


COMPONENT_LABEL = "app.kubernetes.io/component"
LABELS = {APP_LABEL: APP_NAME, COMPONENT_LABEL: "sharder"}


def _spread() -> tuple[SpreadConstraint, ...]:
    selector = {"matchLabels": LABELS}
    return tuple(
        SpreadConstraint(
            max_skew=1, topology_key=key, when_unsatisfiable="ScheduleAnyway", label_selector=selector
        )
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    )


class SharderValues(PodValues):
    """The values of the sharder."""

    image: Annotated[
        Annotated[str, Meta(pattern=IMAGE)] | ImageParts,
        Meta(
            description="The container image: a reference, or `repository` with `tag` and `digest`. The default tag is "
            "this version."
        ),
    ] = f"kubeshard:{__version__}"
    replicas: Annotated[
        int, Meta(ge=1, description="How many pods run. If there are several, one leads.")
    ] = 2
    namespace: Annotated[DnsLabel, Meta(description="Where the sharder runs.")] = SYSTEM_NAMESPACE
    strategy: Annotated[
        Strategy,
        Meta(
            description="How an update replaces pods, as in a Deployment. `rollingUpdate: {maxSurge: 0}` where there "
            "is no room for one more, as with `hostNetwork` on few nodes."
        ),
    ] = field(default_factory=Strategy)
    config: Annotated[
        Mapping[str, Any],
        Meta(description="Fields of SharderConfig. They are merged over those that the manifests need."),
    ] = field(default_factory=dict)
    cert_manager: Annotated[
        CertManager,
        Meta(
            description="Get the webhook's certificate from cert-manager. Otherwise the sharder makes its own. An "
            "issuer of yours: `issuer.create=false`, `issuer.name`, `issuer.kind`."
        ),
    ] = field(default_factory=CertManager)
    policies: Annotated[
        Policies,
        Meta(
            description="Admission policies that confine the sharder's account (Kubernetes 1.30 or newer). `pods` "
            "allows rings over pods."
        ),
    ] = field(default_factory=Policies)
    pod_reports: Annotated[
        Off,
        Meta(
            description="The right to get pods: a shard whose containers have ended is given up at once, instead of "
            "after 30 s."
        ),
    ] = field(default_factory=Off)
    aggregated_roles: Annotated[
        On,
        Meta(
            description="ClusterRoles that let the cluster's viewers, by `view`, see rings, and its administrators, by "
            "`admin`, change them. Rings belong to no namespace, so this needs a ClusterRoleBinding of these."
        ),
    ] = field(default_factory=On)
    topology_spread_constraints: Annotated[
        tuple[SpreadConstraint, ...],
        Meta(description="How pods are spread; by default over nodes and zones, where possible."),
    ] = field(default_factory=_spread)
    host_network: Annotated[
        bool,
        Meta(
            description="Whether pods use their node's network, as webhooks must where the control plane cannot reach "
            "pods. The namespace then admits it, and each port has to be free on the nodes."
        ),
    ] = False
    ports: Annotated[Ports, Meta(description="The ports on which a pod listens.")] = field(
        default_factory=Ports
    )
    extra_objects: Annotated[
        tuple[Mapping[str, Any], ...], Meta(description="More objects, installed with the others.")
    ] = ()


class OperatorRing(Off):
    """The sharder's service account. `policies`: restrict each pod to its own objects and Lease."""

    sharder_namespace: DnsLabel = SYSTEM_NAMESPACE
    sharder_name: DnsLabel = "sharder"
    policies: bool = False


class Maintainer(Values):
    name: str
    email: str


class About(Values):
    """`description` is a sentence; `url` the project's home."""

    version: Annotated[str, Meta(pattern=SEMANTIC_VERSION)] = "0.1.0"
    display_name: str = ""
    description: str = ""
    url: str = ""
    maintainers: tuple[Maintainer, ...] = ()
    keywords: tuple[str, ...] = ()


class OperatorValues(PodValues):
    """The values of an operator."""

    image: Annotated[
        Annotated[str, Meta(pattern=IMAGE)] | ImageParts,
        Meta(
            description="The container image: a reference, or `repository` with `tag` and `digest`. The default tag is "
            "`about.version`."
        ),
    ]
    replicas: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="How many pods run; with 0, the operator pauses. Default: 2, or 1 without leader election or "
            "sharding."
        ),
    ] = None
    namespace: Annotated[DnsLabel | None, Meta(description="Where the operator runs. Default: its name.")] = (
        None
    )
    ring: Annotated[
        OperatorRing,
        Meta(
            description="The ControllerRing that the watches declare, and the role for it of the account "
            "`ring.sharderNamespace`, `ring.sharderName`; with ring.policies=true also admission policies that "
            "restrict each pod to its own objects and Lease."
        ),
    ] = field(default_factory=OperatorRing)
    watch_namespaces: Annotated[
        tuple[DnsLabel, ...],
        Meta(
            description="The only namespaces whose objects it reads and reconciles, and in which it has rights. "
            "Default: all."
        ),
    ] = ()
    pod_disruption_budget: Annotated[
        On, Meta(description="A PodDisruptionBudget: nodes are drained of one pod at a time.")
    ] = field(default_factory=On)
    about: Annotated[About, Meta(description="What a Helm chart says about the operator.")] = field(
        default_factory=About
    )


class ChartValues(OperatorValues):
    """The values of an operator's chart, which knows the release that it is installed as."""

    image: Annotated[
        ImageParts, Meta(description="The container image. The default tag is the chart's `appVersion`.")
    ]
    name_override: Annotated[
        Annotated[str, Meta(pattern=f"^$|{DNS_LABEL}")],
        Meta(
            description="Replaces the chart's name, in the names of objects and in the label `app.kubernetes.io/name`."
        ),
    ] = ""
    fullname_override: Annotated[
        Annotated[str, Meta(pattern=f"^$|{DNS_LABEL}")],
        Meta(
            description="The name of the objects. Default: the release's name, and the chart's unless it contains that."
        ),
    ] = ""


def chosen(type_: type[V], file: Mapping[str, Any] | None = None, settings: Iterable[str] = ()) -> V:
    """The defaults, overridden by a file's values, overridden by settings `KEY=VALUE`. Raises ConfigurationError."""
    given: Any = dict(file or {})
    for setting in settings:
        given = apply_merge_patch(given, _parsed(setting))
    try:
        return msgspec.convert(given, type_)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_explained(type_, str(error))) from None


def _explained(type_: type[Values], error: str) -> str:
    """A mistake in the user's terms; msgspec's messages are about types."""
    message, _, where = error.partition(" - at ")
    place = where.strip("`").removeprefix("$").removeprefix(".")
    path = place.split(".") if place else []
    if unknown := re.fullmatch("Object contains unknown field `(.*)`", message):
        known = [name for name, _ in described(_type_at(type_, path))]
        name = ".".join((*path, unknown[1]))
        close = difflib.get_close_matches(unknown[1], known, n=1)
        return f"there is no value {name}: " + (
            f"did you mean {'.'.join((*path, *close))}?" if close else f"there are {', '.join(known)}"
        )
    if missing := re.fullmatch("Object missing required field `(.*)`", message):
        name = ".".join((*path, missing[1]))
        return f"value {name} is missing: set it with --set {name}=... or in a file with --values"
    if message.startswith("Invalid enum value"):
        message = f"choose one of {', '.join(get_args(_type_at(type_, path)))}"
    elif repr(QUANTITY) in message:
        message = "expected a quantity, as in 250m or 512Mi"
    elif repr(IMAGE) in message:
        message = "expected an image, as in registry.example.com/kubeshard:v1"
    elif repr(CIDR) in message:
        message = "expected addresses, as in 10.0.0.0/28"
    elif repr(DNS_LABEL) in message:
        message = "expected at most 63 lower-case letters, digits and hyphens, as in sharding-system"
    return f"value {place or '(all)'}: {message}"


def _type_at(type_: Any, path: Iterable[str]) -> Any:
    for each in path:
        name, index, _ = each.partition("[")
        found = _bare(
            next(known.type for known in msgspec.structs.fields(type_) if known.encode_name == name)
        )
        type_ = _bare(get_args(found)[0]) if index else found
    return type_


def _bare(type_: Any) -> Any:
    return _bare(get_args(type_)[0]) if get_origin(type_) is Annotated else type_


def plain(values: Values) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values))
    return found


def described(type_: type[Values]) -> Iterator[tuple[str, str]]:
    """Each value with its description: those of this program alone, then those of every one."""
    common = {each.name for each in msgspec.structs.fields(PodValues)}
    for each in sorted(msgspec.structs.fields(type_), key=lambda each: each.name in common):
        yield each.encode_name, _description(each.type)


def _description(type_: Any) -> str:
    texts = [part.description for part in get_args(type_)[1:] if isinstance(part, Meta) and part.description]
    return texts[-1] if get_origin(type_) and texts else ""


def _parsed(setting: str) -> dict[str, Any]:
    key, equals, text = setting.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigurationError(
            f"--set {setting}: write KEY=VALUE, as in replicas=3 or certManager.enabled=true"
        )
    if not text.strip():  # YAML's null, which means the default: rarely what was intended, as in image=$UNSET
        raise ConfigurationError(
            f"--set {setting}: there is no value; leave it out or write null for the default"
        )
    try:
        value: Any = next(iter(documents_in(text.encode())), None)
    except Unreadable as error:
        raise ConfigurationError(f"--set {setting}: the value is not YAML") from error
    for part in reversed(parts):
        value = {part: value}
    return dict(value)
