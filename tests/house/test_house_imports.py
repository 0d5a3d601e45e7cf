"""One way to import inside the project: from the module that defines a name.

A reader then gets from a use to the definition in one step, a module loads only what it needs, and packages cannot
import each other in circles through their `__init__`. Those re-export names for users only; the examples are written as
users would write them, and take from `kubeshard` what it re-exports.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from source_tree import PACKAGE, PACKAGES, installed, name, parsed, sources, walked

import kubeshard

MODULES = [
    path
    for path in sources(PACKAGE, PACKAGES[1] / "cli", PACKAGES[1] / "testing")
    if path.name != "__init__.py" and not path.is_relative_to(PACKAGE / "examples")
]


def _file_of(module: str) -> Path:
    (package,) = (package for package in PACKAGES if package.name == module.partition(".")[0])
    base = package.parent.joinpath(*module.split("."))
    face = base / "__init__.py"
    return face if face.is_file() else base.with_suffix(".py")


@cache
def _handed_on(module: str) -> frozenset[str]:
    """Returns the names that a module takes from another one of ours."""
    return frozenset(
        alias.asname or alias.name
        for node in walked(parsed(_file_of(module)))
        if isinstance(node, ast.ImportFrom) and _is_ours(node.module)
        for alias in node.names
    )


def _is_ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in {package.name for package in PACKAGES}


def _detours(tree: ast.Module) -> list[str]:
    return [
        f"{node.lineno}: {alias.name} from {node.module}"
        for node in walked(tree)
        if isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module)
        for alias in node.names
        if alias.name in _handed_on(node.module) and not _file_of(f"{node.module}.{alias.name}").exists()
    ]


def test_an_import_names_the_module_that_defines_the_name() -> None:
    assert not {name(path): found for path in MODULES if (found := _detours(parsed(path)))}


def test_a_detour_is_found() -> None:
    assert _detours(ast.parse("from kubeshard.core import Key"))
    assert not _detours(
        ast.parse("from kubeshard.core.objects import Key\nfrom kubeshard.core import errors")
    )


def test_examples_take_from_the_face_what_it_has() -> None:
    flat = {
        (f"kubeshard.{home}", public)
        for home, names in kubeshard._HOMES.items()
        for public in names
        if public != "errors"  # a module; its names may be imported from it
    }
    found = [
        f"{name(path)}: {alias.name}"
        for path in sources(PACKAGE / "examples")
        for node in walked(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if (node.module, alias.name) in flat
    ]
    assert not found


def test_no_package_hides_a_module_behind_a_name_that_it_hands_on() -> None:
    """Otherwise `kubeshard.controller.ensure` would be a function in some places and a module in others."""
    found = [
        f"{name(path)}: {hidden}"
        for path in sources(PACKAGE)
        if path.name == "__init__.py"
        for node in parsed(path).body
        if isinstance(node, ast.ImportFrom) and node.module != _dotted(path.parent)
        for hidden in (alias.asname or alias.name for alias in node.names)
        if (path.parent / f"{hidden}.py").exists() or (path.parent / hidden).is_dir()
    ]
    assert not found


def _dotted(folder: Path) -> str:
    return ".".join(folder.relative_to(PACKAGE.parent).parts)


def test_one_module_writes_yaml() -> None:
    """Parsers of YAML disagree on what needs quotes; `kubeshard.core.yaml_output` quotes what any of them misreads."""
    writing = re.compile(r"\byaml\.(safe_)?dump|\b(Safe)?Dumper\b|\bsafe_dump")
    found = [installed(path) for path in sources() if writing.search(path.read_text())]
    assert found == ["kubeshard/core/yaml_output.py"]
