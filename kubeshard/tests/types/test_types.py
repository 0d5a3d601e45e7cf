"""What type checkers report about an author's code: correct code passes, and each mistake is found in its line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
AUTHORS = (HERE / "right.py", HERE / "wrong.py", *sorted((ROOT / "examples").glob("*.py")))

Findings = Mapping[str, Mapping[int, str]]
"""The lines of each file in which something was found."""


@cache
def mypy() -> Findings:
    ran = _run(
        "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-warn-unreachable", *map(str, AUTHORS)
    )
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", ran, re.M)
    return _by_file((path, int(line), message) for path, line, message in found)


@cache
def pyright() -> Findings:
    ran = _run(
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "--project",
        str(HERE),
        *map(str, AUTHORS),
    )
    return _by_file(
        (found["file"], found["range"]["start"]["line"] + 1, found["message"])
        for found in json.loads(ran)["generalDiagnostics"]
        if found["severity"] == "error"
    )


CHECKERS = pytest.mark.parametrize("checker", [mypy, pyright])


@CHECKERS
@pytest.mark.parametrize(
    "path", [HERE / "right.py", *sorted((ROOT / "examples").glob("*.py"))], ids=lambda path: path.name
)
def test_what_is_right_passes(checker: Callable[[], Findings], path: Path) -> None:
    assert not checker().get(path.name)


@CHECKERS
def test_every_mistake_is_found_in_its_line_and_nothing_else_is(checker: Callable[[], Findings]) -> None:
    text = (HERE / "wrong.py").read_text().splitlines()
    mistakes = {number for number, line in enumerate(text, 1) if "# mistake: " in line}
    found = checker()["wrong.py"]
    missed = [f"{number}: {text[number - 1]}" for number in sorted(mistakes - set(found))]
    besides = [f"{number}: {found[number]}" for number in sorted(set(found) - mistakes)]
    assert (missed, besides) == ([], [])


def _run(module: str, *arguments: str) -> str:
    """Returns the output; exit code 1 means that there are findings."""
    roots = {"MYPYPATH": f"{HERE}:{ROOT / 'examples'}"}
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, **roots},
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.stdout


def _by_file(found: Iterable[tuple[str, int, str]]) -> Findings:
    files: dict[str, dict[int, str]] = {}
    for path, line, message in found:
        files.setdefault(Path(path).name, {})[line] = message
    return files
