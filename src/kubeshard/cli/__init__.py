"""The commands `kubeshard` and `kubectl shard`: what operators of a cluster type.

Every command ends a user's mistake in one line that says what to do: exit code 2 for wrong usage or
configuration, 1 for what went wrong on the way. The first Ctrl-C or SIGTERM ends a command in order, the
second at once.

The modules import what a command runs on only when it runs: `--help` is quick and needs no extra.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from kubeshard.runtime.collector import COLLECT_AFTER


def main() -> None:
    """Entry point of the command `kubeshard`."""
    # Only when it runs: it imports the commands of other distributions, and they import this package.
    _run("kubeshard.cli.program", "main")


def shard_main() -> None:
    """Entry point of the plugin `kubectl-shard`, which is `kubectl shard` for kubectl."""
    _run("kubeshard.cli.kubectl.program", "main")


def shard_completions() -> None:
    """Entry point of `kubectl_complete-shard`, which kubectl asks how a command line goes on."""
    _run("kubeshard.cli.kubectl.program", "complete")


def _run(module: str, function: str) -> None:
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    try:
        getattr(import_module(module), function)()
    except KeyboardInterrupt:  # before a command could take signals, as during imports
        sys.exit(130)
