"""The command `kubeshard sharder`."""

from __future__ import annotations

import os

import click

from kubeshard.cli.options import config_option, log_options, report_unknown, strict_option
from kubeshard.sharder import load_sharder_config, run_sharder


@click.command()
@config_option
@strict_option
@log_options
def sharder(path: str | None, strict_config: bool) -> None:
    """Run the sharder: it spreads the objects of every ControllerRing over the ring's live shards.

    Run two or more replicas: all of them answer the API server's webhook calls, the elected one moves
    objects. Where the configuration names no certificate files, the sharder makes a certificate, shares it
    between replicas in a Secret, and renews it.

    \b Environment: LEADER_ELECT  overrides leaderElection.leaderElect KUBECONFIG    the cluster; without it
    ~/.kube/config or the pod
    """
    config, unknown = load_sharder_config(path, os.environ)
    report_unknown(unknown, strict=strict_config)
    run_sharder(config)
