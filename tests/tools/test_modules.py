"""What `make modules` counts."""

from __future__ import annotations

import modules

SOURCE = '''"""A module."""

from kubeshard.core import names  # why

# A comment.
SIZE = 1
"""What it
is."""
'''


def test_lines_are_code_docstrings_or_comments() -> None:
    assert modules.lines_of(SOURCE) == modules.Lines(total=8, code=2, docstrings=3, comments=1)
