"""How commands end."""

import click
import pytest

from kubeshard.commands.ending import run_program
from kubeshard.core.errors import ConfigurationError


def test_a_mistake_that_a_task_group_has_seen_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def command() -> None:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [ConfigurationError("say which")])

    with pytest.raises(SystemExit) as ended:
        run_program(command, "kubeshard", args=[])
    assert (ended.value.code, capsys.readouterr().err) == (2, "Error: say which\n")
