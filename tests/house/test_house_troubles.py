"""docs/troubleshooting.md lists the warnings of the programs: exactly the texts in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from source_tree import PACKAGE, ROOT, parsed, sources, walked

LEVELS = {"warning", "error", "crash", "exception", "critical"}
LOGGERS = {"log", "_log", "_LOG", "logger", "_logger"}
PAGE = ROOT / "docs" / "troubleshooting.md"
COMPONENTS = {
    "cache": "Informers",
    "client": "Client",
    "commands": "Configuration",
    "controller": "Controllers",
    "listwatch": "Lists and watches",
    "manager": "Manager",
    "runtime": "Process",
    "shard": "Shard",
    "sharder": "Sharder",
    "supervisor": "Supervisor",
    "leases": "Leases",
    "webhook": "Webhooks",
    "workqueue": "Work queue",
}
"""The section of the page for each package."""


def described() -> dict[str, set[str]]:
    """Returns the texts on the page, by section."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        found[title] = set(re.findall(r"^\*\*`(.+?)`\*\*", body, re.M))
    return found


@cache
def written(package: str) -> set[str]:
    """Yields the texts that a package logs as warnings or errors."""
    found = set()
    for path in sources(PACKAGE / package):
        if path != PACKAGE / "runtime" / "logs.py":  # the logger itself
            found |= set(texts_of(parsed(path)))
    return found


def texts_of(tree: ast.Module) -> Iterator[str]:
    parents = {child: node for node in walked(tree) for child in ast.iter_child_nodes(node)}
    for node in walked(tree):
        if not (isinstance(node, ast.Attribute) and node.attr in LEVELS and _is_logger(node.value)):
            continue
        while isinstance(parents[node], ast.IfExp):  # one of two levels
            node = parents[node]
        user = parents[node]
        if isinstance(user, ast.Call) and user.func is node:
            calls = [user]
        else:  # the method is bound to a name and called by it
            assert isinstance(user, ast.Assign), ast.unparse(user)
            (target,) = user.targets
            function = _function_around(user, parents)
            calls = _calls_of(ast.unparse(target), function)
        assert calls, ast.unparse(user)
        for call in calls:
            yield from _texts(call.args[0], call, parents, tree)


def _is_logger(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        return called.endswith((".bind", "get_logger", "getLogger"))
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in LOGGERS


def _texts(
    node: ast.expr, call: ast.Call, parents: dict[ast.AST, ast.AST], tree: ast.Module
) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp():
            yield from _texts(node.body, call, parents, tree)
            yield from _texts(node.orelse, call, parents, tree)
        case ast.JoinedStr():
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        case ast.Name():  # passed in by the caller
            function = _function_around(call, parents)
            names = [each.arg for each in function.args.args if each.arg != "self"]
            place = names.index(node.id)
            callers = [
                each for name in (function.name, f"self.{function.name}") for each in _calls_of(name, tree)
            ]
            assert callers, function.name
            for caller in callers:
                yield from _texts(caller.args[place], caller, parents, tree)
        case _:
            raise AssertionError(f"a text that nobody can look up: {ast.unparse(call)}")


def _function_around(
    node: ast.AST, parents: dict[ast.AST, ast.AST]
) -> ast.FunctionDef | ast.AsyncFunctionDef:
    while not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        node = parents[node]
    return node


def _calls_of(name: str, tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == name]


@pytest.mark.parametrize("package", COMPONENTS)
def test_each_warning_and_error_has_an_entry_and_no_entry_is_of_the_past(package: str) -> None:
    texts, entries = written(package), described().get(COMPONENTS[package], set())
    assert texts, "nothing is logged here: remove the package from the list"
    assert not texts - entries, "say in docs/troubleshooting.md what it means and what to do"
    assert not entries - texts, "nothing logs this any more"


def test_no_package_that_warns_is_left_out() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"examples", "__pycache__"}
    assert {package for package in packages if written(package)} == set(COMPONENTS)
    assert not [
        path.name for path in sources(PACKAGE) if path.parent == PACKAGE and set(texts_of(parsed(path)))
    ]


def test_each_entry_stands_once_in_its_section_and_says_something() -> None:
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]:
        entries = re.findall(r"^\*\*`(.+?)`\*\*(.*(?:\n.+)*)", section, re.M)
        assert len(entries) == len({entry for entry, _ in entries})
        assert not [entry for entry, words in entries if len(words.split()) < 8]


@pytest.mark.parametrize(
    ("symptom", "says"),
    [
        ("A ring was deleted", "controllerring=RING"),
        ("Phantom shards", "--shards"),
        ("Too many rings", "sizing.md"),
        (
            "The API server cannot verify the webhook's certificate",
            "x509: certificate has expired or is not yet valid",
        ),
        ("Exit code 137", "watchdog"),
        ("CrashLoopBackOff after an outage of the API server", "--previous"),
    ],
)
def test_what_no_line_of_ours_tells_has_an_entry_that_says_what_to_look_at(symptom: str, says: str) -> None:
    section = PAGE.read_text().partition("## Symptoms\n")[2].partition("\n## ")[0]
    entries = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", section, re.M | re.S))
    assert says in entries[symptom]
