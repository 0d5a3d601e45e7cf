"""kubectl as the tests call it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WITHIN = 60.0


class Kubectl:
    """Calls kubectl as an administrator, in the namespace of the test."""

    def __init__(self, program: Path, kubeconfig: Path, cache: Path, namespace: str) -> None:
        self._command = [str(program), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]
        self.namespace = namespace
        self.folder = cache

    def __call__(self, line: str, *more: str, given: Any = None, **environment: str) -> str:
        """Returns the output of `kubectl LINE`; the line is split like in a shell. `given` is the standard input: a
        manifest or a text.
        """
        done = self.run(line, more, given, environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, line: str, *more: str, given: Any = None) -> str:
        """Returns the error message of a command that must fail."""
        done = self.run(line, more, given, {})
        assert done.returncode != 0, done.stdout
        return done.stderr.strip()

    def json(self, line: str) -> Any:
        return json.loads(self(f"{line} -o json"))

    def rows(self, line: str, **environment: str) -> list[list[str]]:
        """Returns the cells of a table, row by row; ages are `AGE`."""
        lines = self(line, **environment).strip().splitlines()
        return [
            [
                "AGE" if re.fullmatch(r"(\d+[smh])+", cell) else cell
                for cell in re.split(r"\s{2,}", line.strip())
            ]
            for line in lines
        ]

    def start(self, line: str) -> subprocess.Popen[str]:
        """Starts kubectl without waiting for it to end."""
        command = [*self._command, f"--namespace={self.namespace}", *shlex.split(line)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def run(
        self,
        line: str,
        more: tuple[str, ...] = (),
        given: Any = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl, whatever its exit code."""
        arguments = [*shlex.split(line), *more]
        if not {"-A", "-n"} & set(arguments):
            arguments = [f"--namespace={self.namespace}", *arguments]
        return subprocess.run(
            [*self._command, *arguments],
            input=given if given is None or isinstance(given, str) else json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
            timeout=_WITHIN,
            env={**os.environ, **(environment or {})},
        )
