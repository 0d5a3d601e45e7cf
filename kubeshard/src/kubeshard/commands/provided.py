"""Commands that other distributions provide, as entry points:

    [project.entry-points."kubeshard.commands"]
    apiserver = "kubeshard_apiserver.cli.command:apiserver"

The object is a `click.Command`. A command of the group itself goes before one of the same name. The entry points are
only read for such a command, and for the list of all commands, since reading them takes longer than starting.
"""

from __future__ import annotations

from typing import Any

import click

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install


class CommandsInOrder(click.Group):
    """Lists its commands as they were added, then those of other distributions."""

    provided = "kubeshard.commands"

    def list_commands(self, ctx: click.Context) -> list[str]:
        from importlib.metadata import entry_points

        found = {each.name for each in entry_points(group=self.provided)}
        return [*self.commands, *sorted(found - {*self.commands})]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = self.commands.get(cmd_name)
        return self._from_elsewhere(cmd_name) or own if own is None or isinstance(own, NotInstalled) else own

    def _from_elsewhere(self, name: str) -> click.Command | None:
        from importlib.metadata import entry_points

        for entry in entry_points(group=self.provided, name=name):
            try:
                command: click.Command = entry.load()
            except ImportError:  # something that it needs is missing
                continue
            return command
        return None


class NotInstalled(click.Command):
    """For a command of a distribution that is not installed, kubeshard-`extra`: says what to install."""

    def __init__(self, name: str, summary: str, extra: str) -> None:
        super().__init__(
            name,
            callback=self._refuse,
            help=f"{summary} It comes in a separate package, kubeshard-{extra}.",
            short_help=f"{summary.removesuffix('.')} (not installed).",
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )
        self.extra = extra

    def _refuse(self, **_: Any) -> None:
        raise ConfigurationError(
            f"the package kubeshard-{self.extra} is not installed: {how_to_install(self.extra)}"
        )
