"""The commands `kubeshard` and `kubectl shard`: what cluster operators type. They end as `kubeshard.commands` says.

The modules import a command's dependencies only when it runs, so `--help` is quick and needs no extra.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from kubeshard.runtime.garbage_collection import COLLECT_AFTER


def main() -> None:
    _run("kubeshard.cli.program", "main")


def shard_main() -> None:
    """Entry point of the plugin `kubectl-shard`, which kubectl runs as `kubectl shard`."""
    _run("kubeshard.cli.kubectl.program", "main")


def shard_completions() -> None:
    """Entry point of `kubectl_complete-shard`, which kubectl calls to complete a command line."""
    _run("kubeshard.cli.kubectl.program", "complete")


def _run(module: str, function: str) -> None:
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    try:
        getattr(import_module(module), function)()
    except KeyboardInterrupt:  # before the command handles signals, for example during imports
        sys.exit(130)
