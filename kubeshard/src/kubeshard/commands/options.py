"""Options that several commands share, and a command whose help lists environment variables and examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime import logs
from kubeshard.version import __version__

Function = TypeVar("Function", bound=Callable[..., Any])

version_option = click.version_option(__version__, prog_name="kubeshard")


def cluster_options(function: Function) -> Function:
    """Adds `--kubeconfig` and `--context`, passed to the function as `kubeconfig` and `context`."""
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


def apply_option(help: str) -> Callable[[Function], Function]:
    """Adds `--apply`, YAML files or folders of them, passed to the function as `manifests`."""
    return click.option(
        "--apply",
        "manifests",
        metavar="FILE",
        multiple=True,
        type=click.Path(exists=True, path_type=Path),
        help=help,
    )


def sharding_option(default: str | None, help: str) -> Callable[[Function], Function]:
    """Adds `--sharding`, passed to the function as `sharding`."""
    return click.option(
        "--sharding",
        type=click.Choice(("off", "shard", "both", "sharder")),
        default=default,
        show_default=default is not None,
        help=help,
    )


def config_options(function: Function) -> Function:
    """Adds `--config` and `--strict-config`, passed to the function as `path` and `strict_config`."""
    file = click.option(
        "--config",
        "path",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="YAML configuration file, as for the Go program (default: none, every field has its default).",
    )
    strict = click.option(
        "--strict-config",
        is_flag=True,
        help="Reject a configuration file with unknown fields (default: warn).",
    )
    return file(strict(function))


def report_unknown(sentences: Sequence[str], *, strict: bool) -> None:
    """Log a warning for each unknown field or, if `strict`, raise ConfigurationError for all of them."""
    if strict and sentences:
        raise ConfigurationError(f"the configuration file has mistakes: {'; '.join(sentences)}")
    for sentence in sentences:
        logs.get_logger("kubeshard.config").warning("The configuration file has a mistake", problem=sentence)


def new_folder(option: str, path: Path) -> Path:
    """Creates the folder that an option names, unless it is there and empty. Raises ConfigurationError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        used = any(path.iterdir())
    except OSError as error:
        raise ConfigurationError(f"{option} {path}: {error.strerror}") from None
    if used:
        raise ConfigurationError(f"{option} {path}: the folder is not empty; name a new one")
    return path.absolute()


class Command(click.Command):
    """`environment` maps variables to what they do. `examples` are lines to type, or comments beginning with `#`."""

    def __init__(
        self,
        *args: Any,
        environment: Mapping[str, str] | None = None,
        examples: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.environment = dict(environment or {})
        self.examples = tuple(examples)

    def tables(self) -> dict[str, list[tuple[str, str]]]:
        """What is listed below the options: names and what they mean, by the list's title."""
        return {"Environment": list(self.environment.items())} if self.environment else {}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in self.tables().items():
            with formatter.section(title):
                formatter.write_dl(rows)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


CLUSTER_VARIABLE = {"KUBECONFIG": "the kubeconfig; without it ~/.kube/config, or the pod's service account"}
POD_VARIABLE = {"POD_NAME": "this process's name in the leader's Lease (default: the host's name)"}
LEADER_VARIABLE = {"LEADER_ELECT": "true or false; overrides leaderElection.leaderElect"}
