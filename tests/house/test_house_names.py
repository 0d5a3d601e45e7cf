"""Modules that pages and docstrings name exist: after a module is renamed, nothing names it as before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from source_tree import PACKAGE, PACKAGES, name, parsed, sources, tracked, walked

_FILE = re.compile(r"(?<![\w/.-])`?((?:[\w-]+/)*[\w-]+\.py)`?(?![\w/.])")
_MODULE = re.compile(r"`(\w+)\.(?!py`|txt`|svg`|json`)([a-z_]+)`")
_OURS = frozenset(
    path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()
)
_FENCE = re.compile(r"^```.*?^```", re.M | re.S)
OTHERS = frozenset(
    {
        "hello_operator/types.py",  # of the tutorial
        "main.py",
        "backups.py",
        "benchmarks/NAME.py",
    }
)


@cache
def _endings() -> frozenset[str]:
    """`c.py`, `b/c.py` and `a/b/c.py` of each file a/b/c.py."""
    found = set()
    for path in tracked():
        parts = Path(name(path)).parts
        found |= {"/".join(parts[at:]) for at in range(len(parts))}
    return frozenset(found)


@cache
def _words(package: str) -> frozenset[str]:
    """Names of modules of the package and in their code."""
    found = set()
    for path in sources(PACKAGE / package):
        found |= {path.stem, *(part.name for part in path.parents)}
        for node in walked(parsed(path)):
            match node:
                case ast.Attribute(attr=word) | ast.Name(id=word) | ast.arg(arg=word):
                    found.add(word)
                case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word) | ast.ClassDef(name=word):
                    found.add(word)
                case ast.alias(name=word):
                    found.add(word)
    return frozenset(found)


def missing(text: str) -> Iterator[str]:
    """Yields the files and the modules that the text names and that are not there."""
    for file in _FILE.findall(text):
        if file not in _endings() | OTHERS:
            yield file
    for package, word in _MODULE.findall(text):
        if package in _OURS and word not in _words(package):
            yield f"{package}.{word}"


def test_every_module_that_a_page_names_exists() -> None:
    pages = [path for path in tracked() if path.suffix == ".md" and not path.is_relative_to(PACKAGE)]
    assert not [
        f"{name(page)}: {missed}" for page in pages for missed in missing(_FENCE.sub("", page.read_text()))
    ]


def test_every_module_that_a_docstring_names_exists() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    assert not [
        f"{name(path)}: {missed}"
        for path in sources(*PACKAGES)
        for node in walked(parsed(path))
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
        for missed in missing(text)
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`workqueue/no_such_core.py` decides", ["workqueue/no_such_core.py"]),
        ("see no_such_module.py", ["no_such_module.py"]),
        ("`manager.no_such_module`", ["manager.no_such_module"]),
        ("`workqueue/state_machine.py`, `state_machine.py`, `manager.process_health`", []),
    ],
)
def test_a_name_of_nothing_is_found(text: str, names: list[str]) -> None:
    assert list(missing(text)) == names
