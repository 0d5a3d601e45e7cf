"""Counts modules, lines and imports of the distributions: `make modules`.

    python tools/modules.py [FOLDER] [--single]

Lines are split into code, docstrings (strings that are statements of their own), comments and blank lines; tests and
tools are counted apart. An importer of a module is another module of any distribution that names it in an import
statement, at any depth; the `__init__` of a package is not counted, neither as an importer nor as a module of a chain,
because most of them only re-export names. The longest chain is the longest sequence of modules each of which imports
the next; modules that import each other within functions count as one step.

A module with one importer may be a fragment of it. Others have one by design: what is listed in one place, as commands
and built-in kinds are (`REGISTRIES`), and what one command does, of which the command is only the face. So these are
counted apart; `--single` names all, by cause. docs/tour.md says what the figures are.
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

PACKAGES = {"kubeshard": "kubeshard/src", "kubeshard_apiserver": "apiserver/src", "kubeshard_lab": "lab/src"}
GENERATED = "kubeshard.kinds.generated."
"""Classes that `make types` writes: counted apart."""
BESIDE = {
    "tests": ("tests", "kubeshard/tests", "apiserver/tests", "lab/tests"),
    "tools and benchmarks": ("tools", "benchmarks"),
    "examples": ("examples",),
}
REGISTRIES = {
    "kubeshard.cli.program": "commands",
    "kubeshard.cli.kubectl.program": "commands of kubectl shard",
    "kubeshard.inspection.doctor": "checks of an installation",
    "kubeshard_apiserver.admission.chain": "admission plugins",
    "kubeshard_apiserver.controllers.controllers": "controllers",
    "kubeshard_apiserver.front.handlers": "resources that are not objects",
    "kubeshard_apiserver.printing.printers": "columns of built-in kinds",
    "kubeshard_apiserver.resources.builtin": "rules of built-in kinds",
}
"""Modules that list others, and what these are."""

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


def importing(found: Mapping[str, tuple[str, ast.Module]]) -> dict[str, set[str]]:
    """What each module imports, without the `__init__` of packages."""
    return {
        name: set(imported(name, tree, found))
        for name, (_, tree) in found.items()
        if not name.endswith(".__init__")
    }


def single(imports: Mapping[str, set[str]]) -> dict[str, dict[str, str]]:
    """The modules with one importer, each with that one, by cause."""
    importers: dict[str, list[str]] = {name: [] for name in imports}
    for name, those in imports.items():
        for each in those & importers.keys():
            importers[each].append(name)
    causes: dict[str, dict[str, str]] = {"registry": {}, "command": {}, "other": {}}
    for name, by in importers.items():
        if len(by) == 1:
            is_command = ".cli." in by[0] or by[0].endswith(".__main__")
            causes["registry" if by[0] in REGISTRIES else "command" if is_command else "other"][name] = by[0]
    return causes


def rows(root: Path) -> Iterator[tuple[str, ...]]:
    found = modules(root)
    faces = {name for name in found if name.endswith(".__init__")}
    imports = importing(found)
    importers = {name: sum(name in each for each in imports.values()) for name in imports}
    there = tuple(package for package in PACKAGES if (root / PACKAGES[package]).is_dir())
    for title, packages in [*((name, (name,)) for name in there), ("together", there)]:
        inside = [name for name in found if name.split(".")[0] in packages and not name.startswith(GENERATED)]
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
    folders = [each for each in sys.argv[1:] if not each.startswith("--")]
    root = Path(folders[0]) if folders else Path(__file__).resolve().parents[1]
    head = "distribution|files|modules|lines|code|docstrings|comments|mean|one importer|longest chain"
    table = [tuple(head.split("|")), *rows(root)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    print("\nmodules: files without __init__.py, of which are the last three columns\n")
    imports = importing(modules(root))
    causes = single(imports)
    listed, commanded, other = (len(causes[cause]) for cause in ("registry", "command", "other"))
    without = len(imports) - listed
    print(
        f"one importer: {listed} are listed in a registry, {commanded} are what a command does, {other} others."
    )
    print(f"Without registries {(commanded + other) / without:.0%}, ", end="")
    print(f"and without what a command does {other / (without - commanded):.0%}.\n")
    if "--single" in sys.argv:
        for cause, those in causes.items():
            print(f"{cause}:", *(f"  {name}  <- {by}" for name, by in sorted(those.items())), "", sep="\n")
    generated = [lines_of(*of) for name, of in modules(root).items() if name.startswith(GENERATED)]
    print(f"generated kinds, not in the table: {len(generated)} files, {sum(generated, Lines()).total} lines")
    for title, places in BESIDE.items():
        sources = [path.read_text() for folder in places for path in (root / folder).rglob("*.py")]
        lines = sum((lines_of(source, ast.parse(source)) for source in sources), Lines())
        parts = f"{lines.code} of code, {lines.docstrings} of docstrings, {lines.comments} of comments"
        print(f"{title}: {len(sources)} files, {lines.total} lines: {parts}")


if __name__ == "__main__":
    main()
