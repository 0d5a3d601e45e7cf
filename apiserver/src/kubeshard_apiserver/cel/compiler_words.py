"""Compiler errors, worded as on the real server, whose compiler differs in three ways.

It reports errors in the order in which they appear in the expression; it names an unknown variable without the
selected members; and for a method without a matching overload it shows the receiver before the arguments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ERROR = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*?)(?=\nERROR: <input>:|\Z)", re.S)
_UNDECLARED = re.compile(r"undeclared reference to '([\w.]+)\.\w+' \(in container ''\)")
_UNDEFINED = re.compile(r"(undefined field '\w+') not found in struct '.*'", re.S)
_SELECTED = re.compile(r"expression of type '(.*)' cannot be the operand of a select operation", re.S)
_MISFIT = re.compile(r"found no matching overload for '(\w+)' applied to '\((.*)\)'", re.S)


class _Problem(NamedTuple):
    row: int
    column: int
    message: str

    def shown(self, lines: list[str]) -> str:
        line = lines[self.row - 1] if self.row <= len(lines) else ""
        caret = "." * (self.column - 1) + "^"
        return f"ERROR: <input>:{self.row}:{self.column}: {self.message}\n | {line}\n | {caret}"


def compiler_words(text: str, expression: str) -> str:
    lines = expression.split("\n")
    found = [
        _Problem(int(row), int(column), message.partition("\n | ")[0])
        for row, column, message in _ERROR.findall(text)
        # Errors that only result from another error are omitted.
        if "'*error*'" not in message
    ]
    if not found:
        return text
    return "\n".join(problem.shown(lines) for problem in sorted(_theirs(each, lines) for each in found))


def _theirs(problem: _Problem, lines: list[str]) -> _Problem:
    if undeclared := _UNDECLARED.fullmatch(problem.message):
        root = undeclared[1].partition(".")[0]
        column = max(1, problem.column - len(undeclared[1]))
        return _Problem(problem.row, column, f"undeclared reference to '{root}' (in container '')")
    if selected := _SELECTED.fullmatch(problem.message):
        return problem._replace(message=f"type '{selected[1]}' does not support field selection")
    if undefined := _UNDEFINED.fullmatch(problem.message):
        return problem._replace(message=undefined[1])
    if misfit := _MISFIT.fullmatch(problem.message):
        name, operands = misfit[1], _operands(misfit[2])
        before = lines[problem.row - 1][: problem.column - 1].rstrip()
        if before.removesuffix(name).rstrip().endswith(".") and operands:
            applied = f"{operands[0]}.({', '.join(operands[1:])})"
            return problem._replace(message=f"found no matching overload for '{name}' applied to '{applied}'")
    return problem


def _operands(text: str) -> list[str]:
    """Splits a list of types at the commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "(<") - (char in ")>")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]
