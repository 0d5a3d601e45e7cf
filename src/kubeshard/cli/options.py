"""Options that all long-running commands have, and how they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, TypeVar

import click

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime import logs

Function = TypeVar("Function", bound=Callable[..., Any])

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = {"text": "text", "json": "json", "console": "text"}


def log_options(function: Function) -> Function:
    """`--log-level` and `--log-format`, also under the names that the reference's users know."""

    @click.option(
        "--log-level",
        "--zap-log-level",
        "level",
        default="info",
        show_default=True,
        type=click.Choice(_LEVELS, case_sensitive=False),
        help="The least important messages to show.",
    )
    @click.option(
        "--log-format",
        "--zap-encoder",
        "format_",
        default="text",
        show_default=True,
        type=click.Choice(tuple(_FORMATS), case_sensitive=False),
        help="Lines for people, or one JSON object per line.",
    )
    @wraps(function)
    def with_logs(*args: Any, level: str, format_: str, **options: Any) -> Any:
        chosen: Literal["text", "json"] = "json" if _FORMATS[format_] == "json" else "text"
        logs.setup(level, chosen)
        return function(*args, **options)

    return with_logs  # type: ignore[return-value] # click's decorators keep the function's other parameters


config_option = click.option(
    "--config",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Configuration file; defaults without one.",
)
strict_option = click.option(
    "--strict-config",
    is_flag=True,
    help="Refuse a configuration file that has unknown fields (default: warn).",
)


def report_unknown(sentences: Sequence[str], *, strict: bool) -> None:
    """Log each unknown field, or refuse them all. Raises ConfigurationError."""
    if strict and sentences:
        raise ConfigurationError(f"the configuration file has mistakes: {'; '.join(sentences)}")
    for sentence in sentences:
        logs.get_logger("kubeshard.config").warning(f"{sentence} is ignored")
