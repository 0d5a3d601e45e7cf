"""Configuration files of components: one versioned YAML document, read leniently, with clear errors.

The format is that of Kubernetes component configuration: `apiVersion`, `kind`, camelCase fields, durations as
Go writes them. Guaranteed: a wrong value raises ConfigurationError naming file, field and what is expected;
an unknown field is never fatal (another implementation's fields must not stop us) but is
returned as a warning with the most similar name; a field that is null counts as absent.

Environment variables that all components support, and that override the file: `LEADER_ELECT` (a boolean) for
`leaderElection.leaderElect`, `POD_NAME` for `leaderElection.instance`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from kubeshard.client.limiter import TokenBucketLimiter
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import Struct, field
from kubeshard.manager.debug_page import DebugAccess
from kubeshard.manager.http import check_bind_address
from kubeshard.manager.leader_election import ElectionTiming, LeaderElection
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.rng import Rng

C = TypeVar("C", bound=msgspec.Struct)

_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE, _FALSE = frozenset({"1", "t", "true"}), frozenset({"0", "f", "false"})
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")

DURATION = r"^[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+)$"
"""The pattern of a duration, for schemas."""


class Duration(float):
    """Seconds, written in files as `15s`, `1m30s`, `500ms`, `0`, `-1s`."""

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Raises ValueError for text that Go's time.ParseDuration rejects."""
        unsigned = text.removeprefix("-").removeprefix("+")
        if unsigned == "0":
            return cls(0)
        parts = _DURATION_PART.findall(unsigned)
        if not parts or "".join(number + unit for number, unit in parts) != unsigned:
            raise ValueError(f'{text!r} is not a duration: write it like "15s", "1m30s" or "500ms"')
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
        return cls(-seconds if text.startswith("-") else seconds)


class ClientConnection(Struct):
    """`clientConnection`: the client-side rate limit; zero or less disables it."""

    qps: float = 0
    burst: int = 0

    def limiter(self, clock: Clock) -> TokenBucketLimiter | None:
        """A new limiter for one client."""
        return TokenBucketLimiter(self.qps, max(1, self.burst), clock) if self.qps > 0 else None


class LeaderElectionConfig(Struct):
    """`leaderElection`, with the defaults of client-go."""

    leader_elect: bool = True
    lease_duration: Duration = Duration(15)
    renew_deadline: Duration = Duration(10)
    retry_period: Duration = Duration(2)
    resource_lock: str = "leases"
    resource_name: str = ""
    resource_namespace: str = ""
    instance: str = ""
    """The prefix of this process's identity in the Lease; by default, the host name. An extension of kubeshard."""

    def election(self, name: str, namespace: str, rng: Rng) -> LeaderElection | None:
        """The election, or None if it is disabled. `name` and `namespace` identify the Lease if the file names none.
        Raises ConfigurationError.
        """
        if not self.leader_elect:
            return None
        return LeaderElection(
            name=self.resource_name or name,
            namespace=self.resource_namespace or namespace,
            identity=f"{self.instance}_{rng.token()}" if self.instance else "",
            timing=self.timing,
        )

    @property
    def timing(self) -> ElectionTiming:
        """The timing. Fields missing from the file are scaled to match those that are there. Raises
        ConfigurationError.
        """
        default = ElectionTiming()
        factor = self.renew_deadline / default.renew_deadline
        return ElectionTiming(
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
            attempt_timeout=default.attempt_timeout * factor,
            failure_pause=default.failure_pause * factor,
            stop_margin=default.stop_margin * factor,
            cancel_margin=default.cancel_margin * factor,
        )


def election_document(lease_duration: float) -> dict[str, str]:
    """`leaderElection` in a file, for Leases of this many seconds: the other durations are in proportion to it."""
    default = LeaderElectionConfig()
    factor = lease_duration / default.lease_duration
    return {
        "leaseDuration": f"{lease_duration:g}s",
        "renewDeadline": f"{default.renew_deadline * factor:g}s",
        "retryPeriod": f"{default.retry_period * factor:g}s",
    }


class DebuggingConfig(Struct):
    enable_profiling: bool = True
    """Whether `/debug` is served, for callers on the loopback interface."""
    enable_contention_profiling: bool = False


class Endpoint(Struct):
    """The address of a server: `host:port`, `:port` for all interfaces, `"0"` to disable it, or `""` for
    the default.
    """

    bind_address: str = ""


class ComponentConfig(Struct):
    """The fields that the sharder's and the webhosting operator's files have in common."""

    client_connection: ClientConnection = field(default_factory=ClientConnection)
    leader_election: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)
    debugging: DebuggingConfig = field(default_factory=DebuggingConfig)
    health: Endpoint = Endpoint()
    metrics: Endpoint = Endpoint()
    graceful_shut_down: Duration = Duration(15)
    """Note the spelling. 0 does not wait; a negative value waits forever."""
    insecure_metrics: bool = False
    """Serves metrics over plain HTTP to anybody, for development. An extension of kubeshard."""

    @property
    def debug_access(self) -> DebugAccess:
        return "loopback" if self.debugging.enable_profiling else "off"

    @property
    def health_address(self) -> str:
        return self.health.bind_address or ":8081"

    @property
    def metrics_address(self) -> str:
        return self.metrics.bind_address or ":8080"


K = TypeVar("K", bound=ComponentConfig)


def load_component(
    path: str | Path | None, type_: type[K], *, api_version: str, kind: str, environment: Mapping[str, str]
) -> tuple[K, tuple[str, ...]]:
    """The configuration of a component: its file, or the defaults without one, and the environment; and a
    warning for each unknown field in the file. Raises ConfigurationError.
    """
    config, unknown = type_(), tuple[str, ...]()
    if path is not None:
        config, unknown = load_config_file(path, type_, api_version=api_version, kind=kind)
    election = config.leader_election
    if election.resource_lock != "leases":
        raise ConfigurationError('field leaderElection.resourceLock: only "leases" is supported')
    check_bind_address("field health.bindAddress", config.health_address)
    check_bind_address("field metrics.bindAddress", config.metrics_address)
    election = msgspec.structs.replace(
        election,
        leader_elect=boolean(environment, "LEADER_ELECT", election.leader_elect),
        instance=environment.get("POD_NAME") or election.instance,
    )
    return msgspec.structs.replace(config, leader_election=election), unknown


def boolean(environment: Mapping[str, str], name: str, default: bool) -> bool:
    """A variable parsed like Go's strconv.ParseBool, but case-insensitively; `default` if it is unset or
    empty. Raises ConfigurationError.
    """
    text = environment.get(name, "").strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text:
        raise ConfigurationError(f"environment variable {name}={environment[name]!r}: expected true or false")
    return default


def load_config_file(
    path: str | Path, type_: type[C], *, api_version: str, kind: str
) -> tuple[C, tuple[str, ...]]:
    """The configuration in a file, and a warning for each unknown field in it. Raises ConfigurationError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"cannot read the configuration file {path}: {reason}") from None
    try:
        return parse_config(text, type_, api_version=api_version, kind=kind)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def parse_config(text: str, type_: type[C], *, api_version: str, kind: str) -> tuple[C, tuple[str, ...]]:
    """Like `load_config_file`, for a document in memory."""
    from kubeshard.core.yaml_input import Unreadable, documents_in, without_nulls  # 1.2 MiB, for a file

    try:
        documents = documents_in(text.encode())
    except Unreadable as error:
        raise ConfigurationError(str(error)) from None
    document = documents[0] if len(documents) == 1 else None
    if not isinstance(document, Mapping):
        raise ConfigurationError(f"expected a mapping with apiVersion: {api_version} and kind: {kind}")
    try:
        body = without_nulls(document)
    except RecursionError:
        raise ConfigurationError("nested too deeply") from None
    found = (body.pop("apiVersion", None), body.pop("kind", None))
    if found != (api_version, kind):
        raise ConfigurationError(
            f"expected apiVersion {api_version} and kind {kind}, found {found[0]} and {found[1]}"
        )
    unknown = tuple(unknown_fields(body, type_, ""))
    try:
        return msgspec.convert(body, type_, dec_hook=_decode), unknown
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise ConfigurationError(
            f"field {where.strip('`').removeprefix('$.') or '(document)'}: {message}"
        ) from None


def _decode(type_: type, value: Any) -> Any:
    if type_ is Duration:
        if not isinstance(value, str):
            if value == 0:
                return Duration(0)
            raise ValueError(f'{value!r} is not a duration: write it like "15s"')
        return Duration.parse(value)
    raise NotImplementedError(type_)


def unknown_fields(body: Any, type_: Any, path: str) -> Iterator[str]:
    """A line for each field at this path, and below it, that the type does not have."""
    struct = _struct_in(type_)
    if isinstance(body, list):
        items = [argument for argument in get_args(type_) if argument is not Ellipsis]
        for index, item in enumerate(body):
            for item_type in items:
                yield from unknown_fields(item, item_type, f"{path}[{index}]")
        return
    if struct is None or not isinstance(body, Mapping):
        return
    hints = get_type_hints(struct)
    known = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    for name, value in body.items():
        where = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from unknown_fields(value, hints[known[name]], where)
        else:
            close = difflib.get_close_matches(str(name), known, n=1)
            yield f"unknown field {where}" + (f" (did you mean {close[0]}?)" if close else "")


def _struct_in(type_: Any) -> type[msgspec.Struct] | None:
    candidates = (type_, *get_args(type_))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, msgspec.Struct)), None)
