"""How a command logs: `--log-level` and `--log-format`, also as the environment variables `LOG_LEVEL` and `LOG_FORMAT`,
and the flags of Go controllers.

Users of the Go programs are used to `--zap-...`. Here, these flags mean:

| flag | meaning |
|---|---|
| `--zap-log-level` | as `--log-level`; `panic` is error, a number (more detail in Go) is debug |
| `--zap-encoder` | as `--log-format`; `console` is text |
| `--zap-devel` | debug level and text, unless another flag says otherwise |
| `--zap-stacktrace-level`, `--zap-time-encoding` | nothing; a debug line says so |

Stack traces are logged for crashes and at debug level. Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar

import click

from kubeshard.runtime import logs

Function = TypeVar("Function", bound=Callable[..., Any])


LOG_VARIABLES = {"LOG_LEVEL": "as --log-level", "LOG_FORMAT": "as --log-format"}


def log_options(function: Function) -> Function:
    """Sets up logging before the command runs."""

    @click.option(
        "--log-level",
        "level",
        metavar="LEVEL",
        envvar="LOG_LEVEL",
        callback=_checked,
        help="debug, info (the default), warning or error; also per logger: info,kubeshard.cache=debug.",
    )
    @click.option(
        "--log-format",
        "format_",
        envvar="LOG_FORMAT",
        type=click.Choice(("text", "json")),
        help="Human-readable lines (text, the default), or one JSON object per line.",
    )
    @click.option("--zap-log-level", "zap_level", callback=_zap_level, hidden=True)
    @click.option("--zap-encoder", "zap_encoder", type=click.Choice(("json", "console")), hidden=True)
    @click.option(
        "--zap-devel", "devel", type=bool, is_flag=False, flag_value=True, default=False, hidden=True
    )
    @click.option("--zap-stacktrace-level", "stacktrace", hidden=True)
    @click.option("--zap-time-encoding", "times", hidden=True)
    @wraps(function)
    def with_logs(
        *args: Any,
        level: str | None,
        format_: Literal["text", "json"] | None,
        zap_level: str | None,
        zap_encoder: str | None,
        devel: bool,
        stacktrace: str | None,
        times: str | None,
        **options: Any,
    ) -> Any:
        zap_format: Literal["text", "json"] | None = None
        if zap_encoder:
            zap_format = "json" if zap_encoder == "json" else "text"
        logs.setup(level or zap_level or ("debug" if devel else "info"), format_ or zap_format or "text")
        for flag, value in (("--zap-stacktrace-level", stacktrace), ("--zap-time-encoding", times)):
            if value:
                logs.get_logger("kubeshard.cli").debug("A flag without effect here", flag=flag, value=value)
        return function(*args, **options)

    return with_logs  # type: ignore[return-value] # click's decorators keep the function's other parameters


def _checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        logs.parse_levels(value or "info")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def _zap_level(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    level = (value or "").lower()
    if value is None or level in ("debug", "info", "error"):
        return value and level
    if level == "panic":
        return "error"
    if level.isdecimal() and int(level) > 0:
        return "debug"
    raise click.BadParameter(f"{value!r} is not one of debug, info, error, panic or a positive number")
