"""Settings that whoever starts a program decides, rather than its author.

| flag | environment | |
|---|---|---|
| `--metrics-address` | `METRICS_ADDRESS` | where metrics are served: `HOST:PORT`, `:PORT`, or `0` for nowhere |
| `--health-address` | `HEALTH_ADDRESS` | the same for the health pages |
| `--leader-elect`, `--no-leader-elect` | `LEADER_ELECT` | whether to compete for the Lease that the manager declares |
| `--namespaces` | `WATCH_NAMESPACE` | the only namespaces to read and reconcile, separated by commas |
| `--shard-name` | `SHARD_NAME` | the name of this shard, for several on one machine |
| `--processes` | `PROCESSES` | how many processes work, each as a shard, or `auto`: `Manager(processes=...)` |
| `--webhooks`, `--no-webhooks` | `WEBHOOKS` | whether to serve and register the manager's webhooks |
| `--webhook-port` | `WEBHOOK_PORT` | where webhooks are served; 0 for a free port |
| `--log-level` | `LOG_LEVEL` | `debug`, `info`, `warning` or `error`; also per logger: `info,kubeshard.cache=debug` |
| `--log-format` | `LOG_FORMAT` | `text` or `json` |

A flag has priority over the variable, and both over what the manager says. An empty one of either counts as not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.names import is_dns_label
from kubeshard.runtime import environ
from kubeshard.runtime.logs import parse_levels

VARIABLES = {
    "metrics_address": "METRICS_ADDRESS",
    "health_address": "HEALTH_ADDRESS",
    "leader_elect": "LEADER_ELECT",
    "namespaces": "WATCH_NAMESPACE",
    "shard_name": "SHARD_NAME",
    "processes": "PROCESSES",
    "webhooks": "WEBHOOKS",
    "webhook_port": "WEBHOOK_PORT",
    "log_level": "LOG_LEVEL",
    "log_format": "LOG_FORMAT",
}
"""The environment variable of each setting."""

Processes = int | Literal["auto"]
"""How many processes work; `auto`: as many as the container's CPU limit, or otherwise the machine, has processors."""

SWITCHES = ("leader_elect", "webhooks")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What may be decided when a program starts; None leaves a setting as the manager has it.

        run(manager())                              # settings from environment variables
        run(manager(), settings=Settings.parse())   # the same, and flags: python -m my_operator --log-format json

    `namespaces`: the only namespaces that are read and reconciled; kinds without namespaces are not affected.

    Raises ConfigurationError for a value that is not valid.
    """

    metrics_address: str | None = None
    health_address: str | None = None
    leader_elect: bool | None = None
    namespaces: frozenset[str] | None = None
    shard_name: str | None = None
    processes: Processes | None = None
    webhooks: bool | None = None
    webhook_port: int | None = None
    log_level: str | None = None
    log_format: Literal["text", "json"] | None = None

    def __post_init__(self) -> None:
        if self.log_level is not None:
            try:
                parse_levels(self.log_level)
            except ValueError as error:
                raise ConfigurationError(f"log level: {error}") from None
        if self.log_format not in (None, "text", "json"):
            raise ConfigurationError(f"log format {self.log_format!r}: text or json")
        if self.webhook_port is not None and not 0 <= self.webhook_port <= _LAST_PORT:
            raise ConfigurationError(f"webhook port {self.webhook_port}: 0 to {_LAST_PORT}")
        for name in self.namespaces or ():
            if not is_dns_label(name):
                raise ConfigurationError(f"namespaces: {name!r} is not the name of a namespace")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings of environment variables, by default those of the process."""
        given = environ.variables() if environment is None else environment
        return cls.given({name: given.get(key) for name, key in VARIABLES.items()})

    @classmethod
    def given(cls, options: Mapping[str, Any]) -> Settings:
        """The settings of options as they are typed, by name; of those that are neither None nor empty."""
        return cls(**_read({name: value for name, value in options.items() if value not in (None, "")}))

    @classmethod
    def parse(
        cls, arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
    ) -> Settings:
        """The settings of command line arguments, by default those of the process, and of the environment. `--help` and
        mistakes end the process with a message, as usual for `argparse`.
        """
        from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction

        parser = ArgumentParser(argument_default=SUPPRESS)
        for name, variable in VARIABLES.items():
            flag, told = f"--{name.replace('_', '-')}", f"instead of ${variable}"
            if name in SWITCHES:
                parser.add_argument(flag, action=BooleanOptionalAction, help=told)
            else:
                parser.add_argument(flag, help=told)
        given = vars(parser.parse_args(arguments))
        try:
            return cls.from_environment(environment)._replaced(cls.given(given))
        except ConfigurationError as error:
            parser.error(str(error))

    def _replaced(self, other: Settings) -> Settings:
        """These settings, except for those that `other` has."""
        given = {each.name: getattr(other, each.name) for each in fields(other)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def namespaces_of(text: str) -> frozenset[str]:
    """The names in a list that is separated by commas."""
    return frozenset(filter(None, map(str.strip, text.split(","))))


def processes_of(text: str) -> Processes:
    """Raises ConfigurationError."""
    if text != "auto" and not (text.isdecimal() and int(text)):
        raise ConfigurationError(f"processes {text!r}: a number from 1, or auto")
    return "auto" if text == "auto" else int(text)


def _port(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"webhook port {text!r}: a number") from None


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are given as text. Raises ConfigurationError."""
    readers: Mapping[str, Callable[[str], Any]] = {
        "namespaces": namespaces_of,
        "webhook_port": _port,
        "processes": processes_of,
    }
    found = {name: readers.get(name, str)(value) for name, value in given.items() if name not in SWITCHES}
    for name in given.keys() & {*SWITCHES}:
        text = str(given[name]).lower()
        if text not in ("true", "false"):
            raise ConfigurationError(f"{VARIABLES[name]}={given[name]!r}: true or false")
        found[name] = text == "true"
    return found
