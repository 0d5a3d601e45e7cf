"""Counts modules, lines and imports of both distributions: `make modules`.

    python tools/modules.py [FOLDER]

Lines are split into code, docstrings (strings that are statements of their own), comments and blank lines; tests and
tools are counted apart. An importer of a module is another module of either distribution that names it in an import
statement, at any depth; the `__init__` of a package is not counted, neither as an importer nor as a module of a chain,
because most of them only re-export names. The longest chain is the longest sequence of modules each of which imports
the next; modules that import each other within functions count as one step.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGES = {"kubeshard": "src", "kubeshard_apiserver": "apiserver/src"}
BESIDE = {
    "tests": ("tests", "apiserver/tests"),
    "tools and benchmarks": ("tools", "benchmarks"),
    "examples": ("examples",),
}
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Lines(NamedTuple):
    total: int = 0
    code: int = 0
    docstrings: int = 0
    comments: int = 0

    def __add__(self, other: object) -> Lines:
        return (
            Lines(*(a + b for a, b in zip(self, other, strict=True)))
            if isinstance(other, Lines)
            else NotImplemented
        )


def lines_of(source: str, tree: ast.Module) -> Lines:
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    documented = {
        line
        for node in statements
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= documented
    return Lines(len(source.splitlines()), len(code), len(documented), len(comments - code - documented))


def modules(root: Path) -> dict[str, tuple[str, ast.Module]]:
    """Source and tree of every module by its name; `pkg.__init__` is the name of a package's own module."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder / package).rglob("*.py")):
            name = ".".join(path.relative_to(root / folder).with_suffix("").parts)
            source = path.read_text()
            found[name] = (source, ast.parse(source))
    return found


def imported(name: str, tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """The modules that this one names in its import statements. Relative imports are not used here."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [each if each in known else node.module for each in inside]
        yield from {each for each in names if each in known and each != name}


def longest_chain(imports: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Modules in a circle, which only imports within functions can close, are left where they are entered."""
    entered = set[str]()

    @cache
    def below(name: str) -> tuple[str, ...]:
        entered.add(name)
        chains = [
            (),
            *(below(each) for each in sorted(imports[name]) if each not in entered),
        ]
        entered.discard(name)
        return (name, *max(chains, key=len, default=()))

    return max((below(name) for name in sorted(imports)), key=len)


def rows(root: Path) -> Iterator[tuple[str, ...]]:
    found = modules(root)
    faces = {name for name in found if name.endswith(".__init__")}
    imports = {
        name: set(imported(name, tree, found)) for name, (_, tree) in found.items() if name not in faces
    }
    importers = {name: sum(name in each for each in imports.values()) for name in imports}
    there = tuple(package for package in PACKAGES if (root / PACKAGES[package]).is_dir())
    for title, packages in [*((name, (name,)) for name in there), ("both", there)]:
        inside = [name for name in found if name.split(".")[0] in packages]
        lines = sum((lines_of(*found[name]) for name in inside), Lines())
        rooms = [name for name in inside if name not in faces]
        single = sum(importers[name] == 1 for name in rooms)
        size = sum(lines_of(*found[name]).total for name in rooms)
        chain = longest_chain({name: imports[name] & set(rooms) for name in rooms})
        yield (
            title,
            *map(str, (len(inside), len(rooms), lines.total, lines.code, lines.docstrings, lines.comments)),
            f"{size / len(rooms):.0f}",
            f"{single} ({single / len(rooms):.0%})",
            str(len(chain)),
        )


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    head = "distribution|files|modules|lines|code|docstrings|comments|mean|one importer|longest chain"
    table = [tuple(head.split("|")), *rows(root)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    print("\nmodules: files without __init__.py, of which are the last three columns\n")
    for title, folders in BESIDE.items():
        sources = [path.read_text() for folder in folders for path in (root / folder).rglob("*.py")]
        lines = sum((lines_of(source, ast.parse(source)) for source in sources), Lines())
        parts = f"{lines.code} of code, {lines.docstrings} of docstrings, {lines.comments} of comments"
        print(f"{title}: {len(sources)} files, {lines.total} lines: {parts}")


if __name__ == "__main__":
    main()
