"""The code blocks of the documents, as the house tests and the type checker see them.

A block that no test can run says why, in a preceding comment that readers do not see: `<!-- not run: needs a mesh -->`.
"""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from source_tree import ROOT, tracked

PAGES = [
    path for path in tracked() if path.suffix == ".md" and not path.is_relative_to(ROOT / "kubeshard" / "src")
]
_BLOCK = re.compile(
    r"""(?:^<!--[ ]not[ ]run:(?P<excuse>[^\n]*?)-->\n+)?
    ^```(?P<language>\w*)(?:[ ]title="(?P<title>[^"]+)")?\n
    (?P<text>.*?)^```$""",
    re.M | re.S | re.X,
)
_COMMENT = re.compile(r"(?:^|[ \t]+)# [^\n]*", re.M)
_FIRST_OPERATOR = (ROOT / "examples" / "first_operator.py").read_text()

BEFORE = {
    "README.md": "from kubeshard import Sharding",
    "docs/apiserver.md": "import subprocess\nfrom pathlib import Path",
    "docs/design/reads-and-writes.md": "from msgspec import UNSET, UnsetType\nfrom kubeshard import Struct",
    "docs/existing-controllers.md": f"{_FIRST_OPERATOR}\nfrom kubeshard import Sharding",
    "docs/in-manager-sharding.md": f"{_FIRST_OPERATOR}\nfrom kubeshard import Sharding",
    "docs/informers.md": "async def send_elsewhere(delta: object) -> None: ...",
    "docs/testing.md": "import asyncio\nfrom kubeshard.client import load_config",
}
"""Names that the reader of a page has when the programs begin, and that the page does not repeat."""

ALONE = {"docs/work-queue.md"}
"""Pages on which each program is independent; elsewhere each one continues the previous ones of its chapter."""


class Block(NamedTuple):
    page: str
    line: int
    chapter: int
    """How many headings of the second level are above it, on a page of chapters; otherwise 0."""
    language: str
    title: str | None
    text: str
    excuse: str | None
    """Why the block is not run, if it says so."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> Iterator[list[str]]:
        """Returns the words of each simple command that a shell would run, without the variables set for it."""
        text = self.text.replace("\\\n", " ")
        if self.language == "console":
            text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
        lexer = shlex.shlex(_COMMENT.sub("", text), posix=True, punctuation_chars="();<>|&\n")
        lexer.whitespace_split, lexer.whitespace, lexer.commenters = True, " \t", ""
        words: list[str] = []
        for word in [*lexer, "\n"]:
            if set(word) <= set("();<>|&\n"):
                if words:
                    yield words
                words = []
            elif words or not re.match(r"\w+=", word):
                words.append(word)


def blocks_of(page: str, text: str) -> list[Block]:
    chapters = [heading.start() for heading in re.finditer(r"^## ", text, re.M)] if of_chapters(page) else []
    found = [
        Block(
            page,
            text.count("\n", 0, match.start("text")) + 1,
            sum(start < match.start() for start in chapters),
            match["language"],
            match["title"],
            match["text"],
            match["excuse"] and match["excuse"].strip(),
        )
        for match in _BLOCK.finditer(text)
    ]
    fences = re.findall(r"^\s*(?:```|~~~)", text, re.M)
    assert len(fences) == 2 * len(found), (
        f"{page}: a fence that is not at the beginning of its line, or not closed"
    )
    return found


def of_chapters(page: str) -> bool:
    """Whether the programs of a section of the second level do not continue those of the sections above it."""
    return page.startswith("docs/how-to/")


def all_blocks() -> list[Block]:
    return [block for path in PAGES for block in blocks_of(str(path.relative_to(ROOT)), path.read_text())]


def programs(page: str, blocks: Iterable[Block]) -> Iterator[tuple[str, int]]:
    """Returns the Python of a page, and the number of lines by which it is shifted against the page: everything but
    files and blocks that are not run. Code that starts a program, or awaits outside of a function, is put into a
    function.
    """
    before = textwrap.dedent(BEFORE.get(page, "")).splitlines()
    parts = [
        block
        for block in blocks
        if block.language == "python" and block.title is None and block.excuse is None
    ]
    if page in ALONE:
        groups = [[part] for part in parts]
    else:
        groups = [list(group) for _, group in groupby(parts, key=lambda part: part.chapter)]
    for together in groups:
        lines: list[str] = []
        for part in together:
            lines += [""] * (part.line - 2 - len(lines))
            if _starts_something(ast.parse(part.text)):
                lines += [
                    f"async def _block_{part.line}() -> None:",
                    *textwrap.indent(part.text, "    ").splitlines(),
                ]
            else:
                lines += ["", *part.text.splitlines()]
        yield "\n".join([*before, *lines, ""]), len(before)


def _starts_something(program: ast.Module) -> bool:
    return any(
        (isinstance(statement, ast.Expr) and re.match(r"(asyncio\.)?run\(", ast.unparse(statement)))
        or any(
            isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor)
            for node in _outside_functions(statement)
        )
        for statement in program.body
    )


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)
