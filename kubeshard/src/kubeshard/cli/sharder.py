"""The command `kubeshard sharder`."""

from __future__ import annotations

import os

import click

from kubeshard.commands.logging import LOG_VARIABLES, log_options
from kubeshard.commands.options import (
    CLUSTER_VARIABLE,
    LEADER_VARIABLE,
    POD_VARIABLE,
    Command,
    cluster_options,
    config_options,
    report_unknown,
    version_option,
)


@click.command(
    cls=Command,
    short_help="Run the sharder.",
    environment={
        **LEADER_VARIABLE,
        **POD_VARIABLE,
        "POD_NAMESPACE": "the namespace that the sharder runs in (default: sharding-system)",
        **CLUSTER_VARIABLE,
        **LOG_VARIABLES,
    },
    examples=(
        "kubeshard sharder --config config.yaml",
        "# on your own machine, without leader election, logging everything",
        "LEADER_ELECT=false kubeshard sharder --context kind-shard --log-level debug",
    ),
)
@config_options
@cluster_options
@log_options
@version_option
def sharder(path: str | None, strict_config: bool, kubeconfig: str | None, context: str | None) -> None:
    """Run the sharder: spread the objects of every ControllerRing over the ring's live shards.

    Run two or more replicas: all of them answer the API server's webhook calls, the elected one moves objects. If the
    configuration names no certificate files, the sharder creates a certificate, shares it between replicas in a Secret,
    and renews it.
    """
    from kubeshard.sharder.app import run_sharder
    from kubeshard.sharder.config import load_sharder_config

    config, unknown = load_sharder_config(path, os.environ)
    report_unknown(unknown, strict=strict_config)
    run_sharder(config, kubeconfig, context)
