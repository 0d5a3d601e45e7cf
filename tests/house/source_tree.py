"""The project's files, as the house tests see them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = (ROOT / "kubeshard", ROOT / "apiserver", ROOT / "lab")
PACKAGE = ROOT / "kubeshard" / "src" / "kubeshard"
_PROOF = re.compile(r"`(?:([\w/]+\.py))?::(test_\w+)`")
PACKAGES = (
    PACKAGE,
    ROOT / "apiserver" / "src" / "kubeshard_apiserver",
    ROOT / "lab" / "src" / "kubeshard_lab",
)


@cache
def tracked() -> tuple[Path, ...]:
    """Returns the files that git tracks; without git, everything outside hidden and build folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        skipped = {"build", "dist", "__pycache__"}
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(part.startswith(".") or part in skipped for part in path.relative_to(ROOT).parts)
        ]
    return tuple(path for path in paths if path.is_file())


def texts() -> Iterator[tuple[str, str]]:
    """Yields (path from the root, content) of every tracked text file."""
    for path in tracked():
        try:
            yield str(path.relative_to(ROOT)), path.read_text()
        except UnicodeDecodeError:
            continue


def sources(*below: Path) -> list[Path]:
    """Returns the source files in these folders; by default, those that the distributions install."""
    folders = below or PACKAGES
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in folders)
    ]


def installed(path: Path) -> str:
    """Returns the path of a module after installation: `kubeshard/core/names.py`."""
    return str(next(path.relative_to(package.parent) for package in PACKAGES if path.is_relative_to(package)))


@cache
def parsed(path: Path) -> ast.Module:
    """Returns the tree of a module, which is not to be changed. `conftest.py` clears the cache after these tests."""
    return ast.parse(path.read_text(), str(path))


@cache
def walked(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Returns what `ast.walk` yields, which takes longer than all that is done with it."""
    return tuple(ast.walk(tree))


def proofs(text: str) -> Iterator[tuple[str, str]]:
    """Yields (file, test) for each test that a document names; a test without a file is in the last file named."""
    file = ""
    for named, test in _PROOF.findall(text):
        file = named or file
        yield file, test


def is_a_test(file: str, test: str) -> bool:
    paths = [folder / "tests" / file for folder in (ROOT, *DISTRIBUTIONS)]
    return any(path.is_file() and test in _functions(path) for path in paths)


@cache
def _functions(path: Path) -> set[str]:
    found = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in walked(parsed(path)) if isinstance(node, found)}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


tracked()  # called now, while git may be started: tests start no programs
