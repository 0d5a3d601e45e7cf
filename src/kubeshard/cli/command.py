"""A command whose help teaches: environment variables and examples in sections of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class Command(click.Command):
    """`environment`: variable and what it does. `examples`: lines to type, or a comment beginning with `#`."""

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

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.environment:
            with formatter.section("Environment"):
                formatter.write_dl(list(self.environment.items()))
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


CLUSTER_VARIABLE = {"KUBECONFIG": "the kubeconfig; without it ~/.kube/config, or the pod's service account"}
POD_VARIABLE = {"POD_NAME": "this process's name in the leader's Lease (default: the host's name)"}
LEADER_VARIABLE = {"LEADER_ELECT": "true or false, wins over leaderElection.leaderElect"}
