"""What `make modules` counts."""

from __future__ import annotations

import ast
from pathlib import Path

import modules

SOURCE = '''"""A module."""

from kubeshard.core import names  # why

# A comment.
SIZE = 1
"""What it
is."""
'''


def test_lines_are_code_docstrings_or_comments() -> None:
    lines = modules.lines_of(SOURCE, ast.parse(SOURCE))
    assert lines == modules.Lines(total=8, code=2, docstrings=3, comments=1)


def test_the_longest_chain_of_imports_leaves_circles_where_it_enters_them() -> None:
    imports = {"a": {"b", "c"}, "b": {"d"}, "c": set[str](), "d": {"e", "b"}, "e": set[str]()}
    assert modules.longest_chain(imports) == ("a", "b", "d", "e")


def test_an_import_of_a_name_is_one_of_its_module(tmp_path: Path) -> None:
    package = tmp_path / "kubeshard" / "src" / "kubeshard"
    package.mkdir(parents=True)
    for name, text in {
        "__init__": "from kubeshard.a import A",
        "a": "A = 1",
        "b": "from kubeshard import a\n",
        "c": "from kubeshard.a import A",
        "d": "import kubeshard.c",
    }.items():
        (package / f"{name}.py").write_text(text)
    first, both = modules.rows(tmp_path)
    assert first[1:3] == both[1:3] == ("5", "4")
    assert first[-2:] == ("1 (25%)", "3")
