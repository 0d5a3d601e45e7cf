"""Counts modules and lines of the distributions: `make modules`.

Lines are split into code, docstrings (strings that are statements of their own), comments and blank lines. Generated
kinds, tests and tools are counted apart. A room is a module that is not the `__init__` of a package.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("kubeshard/src/kubeshard", "apiserver/src/kubeshard_apiserver", "lab/src/kubeshard_lab")
GENERATED = "kubeshard/src/kubeshard/kinds/generated"
"""Classes that `make types` writes."""
BESIDE = {
    "generated kinds": (GENERATED,),
    "tests": ("tests", "kubeshard/tests", "apiserver/tests", "lab/tests"),
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
    total: int
    code: int
    docstrings: int
    comments: int


def lines_of(source: str) -> Lines:
    documented = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
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


def row(title: str, paths: Iterable[Path]) -> tuple[str, ...]:
    files = list(paths)
    counts = [lines_of(path.read_text()) for path in files]
    rooms = sum(path.name != "__init__.py" for path in files)
    return title, str(len(files)), str(rooms), *(str(sum(column)) for column in zip(*counts, strict=True))


def main() -> None:
    generated = set((ROOT / GENERATED).rglob("*.py"))
    own = {each.rpartition("/")[2]: set((ROOT / each).rglob("*.py")) - generated for each in PACKAGES}
    beside = {
        title: {path for each in places for path in (ROOT / each).rglob("*.py")}
        for title, places in BESIDE.items()
    }
    rows = [
        row(title, paths)
        for title, paths in {**own, "together": set().union(*own.values()), **beside}.items()
    ]
    table = [("", "files", "rooms", *Lines._fields), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for each in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(each, widths, strict=True)))


if __name__ == "__main__":
    main()
