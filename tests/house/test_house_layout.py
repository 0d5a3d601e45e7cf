"""The location of modules, and how they begin."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder
from source_tree import (
    DISTRIBUTIONS,
    PACKAGE,
    PACKAGES,
    ROOT,
    installed,
    name,
    parsed,
    sources,
    tracked,
    walked,
)

import kubeshard
import kubeshard_apiserver

NAMES = [package.name for package in PACKAGES]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_no_module_is_a_drawer_for_anything() -> None:
    """The repository's own programs are in `tools/` at the root."""
    drawers = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "shared"}
    programs = (ROOT / "tools", ROOT / "tests" / "tools")
    found = [
        name(path)
        for path in sources(ROOT)
        if drawers & {path.stem, *path.relative_to(ROOT).parts}
        if not any(path.is_relative_to(folder) for folder in programs)
    ]
    assert not found


def test_a_package_says_what_it_is_for() -> None:
    """At least a sentence: what it guarantees, and what it does not."""
    packages = [path for path in sources() if path.name == "__init__.py"]
    assert not [name(path) for path in packages if len((ast.get_docstring(parsed(path)) or "").split()) < 5]


def test_a_module_begins_with_its_docstring() -> None:
    modules = [path for path in sources() if path.name != "__init__.py"]
    assert not [name(path) for path in modules if not ast.get_docstring(parsed(path))]


def test_a_table_in_a_docstring_has_one_row_per_line() -> None:
    broken = [
        f"{name(path)}: {line}"
        for path in sources(ROOT)
        if re.search(r"^\s*\||\|$", path.read_text(), re.M)  # most modules have no such line to look at
        for node in walked(parsed(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for line in (ast.get_docstring(node) or "").splitlines()
        if line.startswith("|") != line.endswith("|") or "| |-" in line
    ]
    assert not broken


def test_an_item_of_a_list_in_a_docstring_is_one_item() -> None:
    """What a formatter of docstrings that does not know lists has wrapped is found by its indentation."""
    broken = [
        f"{name(path)}: {line}"
        for path in sources(ROOT)
        if re.search(_ITEM, path.read_text(), re.M)
        for node in walked(parsed(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for line in _torn(ast.get_docstring(node) or "")
    ]
    assert not broken


def test_a_torn_list_is_found() -> None:
    assert not list(_torn("- one\n  goes on:\n  - inner\n- two\n\ntext"))
    assert list(_torn("- one\ngoes on")) == ["goes on"]
    assert list(_torn("- one\n  goes on;\n  - two")) == ["  - two"]


_ITEM = r"^\s*([-*]|\d+\.) "


def _torn(docstring: str) -> Iterator[str]:
    """Yields lines that continue an item without its indentation, and items within one that announces none."""
    item: int | None = None
    before = ""
    for line in docstring.splitlines():
        indentation = len(line) - len(line.lstrip())
        if not line.strip():
            item = None
        elif re.match(_ITEM, line):
            if item is not None and indentation > item and not before.endswith(":"):
                yield line
            item = indentation
        elif item is not None and indentation <= item:
            yield line
        before = line


def test_every_folder_with_modules_is_a_package() -> None:
    found = {name(path.parent) for path in sources() if not (path.parent / "__init__.py").exists()}
    assert not found


def test_nobody_but_the_lab_imports_testing() -> None:
    found = [
        name(path)
        for path in sources()
        if not fnmatch(installed(path), "kubeshard_apiserver/testing/*")
        and not fnmatch(installed(path), "kubeshard_lab/*")
        if "kubeshard_apiserver.testing" in {module for module, _ in _imports(parsed(path))}
    ]
    assert not found


def test_the_floors_are_checked_by_make_lint() -> None:
    assert re.search(r"^lint:(.*\n\t.*)*lint-imports", (ROOT / "Makefile").read_text(), re.M)
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    floors = {part.strip() for layer in layers for part in layer.split("|")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= floors


NEED_AN_EXTRA = (
    "kubeshard/cli/kubectl/screen.py",  # imported by the command when it runs
    "kubeshard_lab/experiment/processes.py",  # likewise
    "kubeshard_lab/experiment/report/drawing.py",  # imported when charts are drawn
    "kubeshard_apiserver/testing/plugin.py",  # imported by pytest
)


@pytest.mark.parametrize(
    ("distribution", "package"), list(zip(DISTRIBUTIONS, PACKAGES, strict=True)), ids=NAMES
)
def test_the_core_install_is_enough_to_import_what_needs_no_extra(distribution: Path, package: Path) -> None:
    """Modules of an extra are imported where they are used, or guarded and reported with the name of the extra."""
    core = _needs(distribution)
    modules = {
        path.name for path in PACKAGES[: DISTRIBUTIONS.index(distribution) + 1]
    } | sys.stdlib_module_names
    for module, distributions in packages_distributions().items():
        if core & {_normal(distribution) for distribution in distributions}:
            modules.add(module)
    found = [
        f"{name(path)}:{line} {module}"
        for path in sources(package)
        if not any(fnmatch(installed(path), pattern) for pattern in NEED_AN_EXTRA)
        for module, line in _imports(parsed(path), top_level_only=True)
        if module.partition(".")[0] not in modules
    ]
    assert not found


def _imports(tree: ast.Module, *, top_level_only: bool = False) -> list[tuple[str, int]]:
    nodes = tree.body if top_level_only else walked(tree)
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, node.lineno))
    return found


def _needs(distribution: Path) -> set[str]:
    """Returns the packages that are installed with it."""
    own = tomllib.loads((distribution / "pyproject.toml").read_text())["project"]["dependencies"]
    found = {_normal(requirement) for requirement in own}
    return found | _needs(DISTRIBUTIONS[0]) if "kubeshard" in found else found


def _normal(requirement: str) -> str:
    """PEP 503: `PyYAML>=6.0` -> `pyyaml`"""
    bare = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert bare
    return re.sub(r"[-_.]+", "-", bare[0]).lower()


@pytest.mark.parametrize(
    ("distribution", "package"), list(zip(DISTRIBUTIONS, PACKAGES, strict=True)), ids=NAMES
)
def test_a_wheel_has_every_file_of_its_package_and_nothing_else(
    distribution: Path, package: Path, tmp_path: Path
) -> None:
    (wheel,) = WheelBuilder(str(distribution)).build(directory=str(tmp_path), versions=["standard"])
    shipped = {path for path in ZipFile(wheel).namelist() if ".dist-info/" not in path}
    assert shipped == {installed(path) for path in tracked() if path.is_relative_to(package)}


def test_both_distributions_have_one_version() -> None:
    assert kubeshard.__version__ == kubeshard_apiserver.__version__
    other = tomllib.loads((DISTRIBUTIONS[1] / "pyproject.toml").read_text())["project"]
    assert f"kubeshard=={kubeshard.__version__}" in other["dependencies"]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=NAMES)
def test_the_pythons_that_are_claimed_are_those_that_ci_tests(distribution: Path) -> None:
    project = tomllib.loads((distribution / "pyproject.toml").read_text())["project"]
    claimed = set(re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"])))
    (others,) = re.findall(r"^PYTHONS \?= (.+)", (ROOT / "Makefile").read_text(), re.M)
    lowest = project["requires-python"].removeprefix(">=")
    assert claimed == {lowest, *re.findall(r"3\.\d+", others)}
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert claimed <= set(re.findall(r"^ +(3\.\d+)$", workflow, re.M))
    assert f"PYTHON: python{lowest}" in workflow


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=NAMES)
def test_what_a_distribution_offers_by_name_is_there(distribution: Path) -> None:
    project = tomllib.loads((distribution / "pyproject.toml").read_text())["project"]
    offered = [*project.get("scripts", {}).values()]
    offered += [place for group in project.get("entry-points", {}).values() for place in group.values()]
    for place in offered:
        module, _, attribute = place.partition(":")
        found = import_module(module)
        assert not attribute or hasattr(found, attribute), place
