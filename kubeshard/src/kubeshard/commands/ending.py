"""How commands end: errors are one line (`kubeshard.manager.exit_codes`)."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from kubeshard.core.errors import KubeshardError, ungrouped
from kubeshard.inspection.errors import Unanswerable
from kubeshard.runtime.logs import one_line


def run_program(command: click.Command, name: str, **options: Any) -> None:
    """Runs the command, or of a group the one that the process's arguments name, and exits the process if it fails."""
    try:
        _run(command, name, options)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Unanswerable as error:
        click.echo(f"Error: {one_line(str(error))}", err=True)
        sys.exit(1)
    except KubeshardError as error:
        from kubeshard.manager.exit_codes import ending_of

        code, line = ending_of(error)
        click.echo(line, err=True)
        sys.exit(code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        click.echo(f"Error: cannot write: {error.strerror}", err=True)
        # Not sys.exit: on exit the interpreter would try to flush the rest again, and report that error as well.
        os._exit(1)


def _run(command: click.Command, name: str, options: dict[str, Any]) -> None:
    try:
        command.main(prog_name=name, standalone_mode=False, **options)
    except ExceptionGroup as group:
        if isinstance(error := ungrouped(group), KubeshardError):
            raise error from None
        raise
