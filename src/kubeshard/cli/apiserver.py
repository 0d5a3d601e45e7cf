"""The command `kubeshard apiserver`, which the distribution kubeshard-apiserver provides."""

from __future__ import annotations

from importlib.util import find_spec

import click

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install


def apiserver_command() -> click.Command:
    """The command, or, if it is not installed, a substitute that says what to install."""
    if find_spec("kubeshard_apiserver") is None:
        return _missing
    from kubeshard_apiserver.cli.command import apiserver

    return apiserver


@click.command(
    "apiserver",
    short_help="Run a Kubernetes API server on this machine (not installed).",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _missing() -> None:
    """Run a Kubernetes API server. It comes in a separate package, kubeshard-apiserver."""
    raise ConfigurationError(f"the embedded API server is not installed: {how_to_install('apiserver')}")
