"""How commands end: errors in one line (`kubeshard.manager.ending`)."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from kubeshard.core.errors import KubeshardError
from kubeshard.survey.errors import Unanswerable


def run_program(group: click.Group, name: str, **options: Any) -> None:
    """Runs a command of the group, as the arguments of the process say, and ends the process where it fails."""
    try:
        group.main(prog_name=name, standalone_mode=False, **options)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Unanswerable as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    except KubeshardError as error:
        from kubeshard.manager.ending import ending_of

        code, line = ending_of(error)
        click.echo(line, err=True)
        sys.exit(code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        click.echo(f"Error: cannot write: {error.strerror}", err=True)
        # Not sys.exit: at its end the interpreter would try to write the rest once more, and report that, too.
        os._exit(1)
