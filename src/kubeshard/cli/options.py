"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime import logs
from kubeshard.version import __version__

Function = TypeVar("Function", bound=Callable[..., Any])

version_option = click.version_option(__version__, prog_name="kubeshard")


def cluster_options(function: Function) -> Function:
    """`--kubeconfig` and `--context`, given on as `kubeconfig` and `context`."""
    file = click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="The kubeconfig (default: see Environment).",
    )
    context = click.option(
        "--context", metavar="NAME", help="The kubeconfig's context (default: its current one)."
    )
    return file(context(function))


def config_options(function: Function) -> Function:
    """`--config` and `--strict-config`, given on as `path` and `strict_config`."""
    file = click.option(
        "--config",
        "path",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Configuration file (docs/configuration.md); defaults without one.",
    )
    strict = click.option(
        "--strict-config",
        is_flag=True,
        help="Refuse a configuration file that has unknown fields (default: warn).",
    )
    return file(strict(function))


def report_unknown(sentences: Sequence[str], *, strict: bool) -> None:
    """Log each unknown field, or refuse them all. Raises ConfigurationError."""
    if strict and sentences:
        raise ConfigurationError(f"the configuration file has mistakes: {'; '.join(sentences)}")
    for sentence in sentences:
        logs.get_logger("kubeshard.config").warning("The configuration file has a mistake", problem=sentence)
