"""Expressions: compiled with the names of the available variables, and evaluated with their values.

Guaranteed: compilation finds unknown names, syntax errors, operands whose types cannot match, and literals that can
never be right (`literals`); errors are worded as on the real server. Values are JSON-serializable and are not modified.
Not guaranteed: errors that can be found only with a schema, such as an unknown field, because a variable may have any
value.

The real server's compiler differs in three ways, for which errors are reworded: it reports them in the order in which
they appear in the expression; it names an unknown variable without the selected members; and for a method without a
matching overload it shows the receiver before the arguments.

Requires cel-expr-python; if it is missing, the first compilation raises an error that says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install
from kubeshard_apiserver.cel.checked import Checked
from kubeshard_apiserver.cel.library import EXTENSIONS, Functions, functions, with_optionals
from kubeshard_apiserver.cel.literals import Wrong, wrong_literals
from kubeshard_apiserver.schema.numbers import go_values

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


def _compiler_words(text: str, expression: str) -> str:
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


class CelError(Exception):
    """Raised for an expression that cannot be compiled or evaluated; the message says why."""


class Program:
    """`returns` is the static type of the expression, such as `bool`, `string` or `dyn`."""

    def __init__(self, expression: str, returns: str, evaluate: Callable[[Mapping[str, Any]], Any]) -> None:
        self.expression = expression
        self.returns = returns
        self._evaluate = evaluate

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Evaluates the expression with these variables. Raises CelError."""
        return self._evaluate(variables)


@lru_cache(maxsize=1024)
def compile_expression(expression: str, names: tuple[str, ...]) -> Program:
    """Compiles an expression. `names` are the available variables: `name`, or `name: type` if the type is known; a
    name with dots denotes a member. Raises CelError, or ConfigurationError if the library is missing.
    """
    compiled, returns, _ = checked(_environment(names), expression)
    error = library().Type.ERROR

    def evaluate(variables: Mapping[str, Any]) -> Any:
        try:
            value = compiled.eval(data=variables)
            if value.type() == error and _TOO_LARGE in str(value.value()):
                value = compiled.eval(data=go_values(variables))
            if value.type() == error:
                raise CelError(_runtime_words(str(value.value())))
            return value.plain_value()
        except (RuntimeError, OverflowError) as problem:
            raise CelError(_runtime_words(str(problem))) from None
        except TypeError:
            raise CelError("an optional value cannot be the result of an expression here") from None

    return Program(expression, returns, evaluate)


@lru_cache(maxsize=64)
def _environment(names: tuple[str, ...]) -> Any:
    cel = library()
    return environment(
        {name: _type(cel, kind) for name, _, kind in (given.partition(": ") for given in names)}
    )


def environment(variables: Mapping[str, Any], pool: Any = None) -> Any:
    """Returns an environment for compilation. `variables` maps names to the library's types; `pool` describes the
    message types among them.
    """
    cel = library()
    config = cel.NewEnvConfigFromYaml(json.dumps({"name": "kubernetes", "extensions": EXTENSIONS}))
    declared = [_declaration(cel, name, overloads) for name, overloads in functions().items()]
    return cel.NewEnv(descriptor_pool=pool, config=config, variables=variables, functions=declared)


def checked(env: Any, expression: str) -> tuple[Any, str, Checked]:
    """Returns the compiled expression, the type of its result, and its tree. Raises CelError."""
    try:
        compiled = env.compile(with_optionals(expression))
    except RuntimeError as problem:
        words = _compiler_words(_CODE.sub("", str(problem)), expression)
        raise CelError(f"compilation failed: {words}") from None
    tree = Checked(compiled.serialize())
    if wrong := wrong_literals(tree, _can_be_called):
        raise CelError(_shown(wrong, expression))
    return compiled, _type_name(compiled.return_type()), tree


def _shown(wrong: list[Wrong], expression: str) -> str:
    lines = expression.split("\n")
    problems = [
        _Problem(before.count("\n") + 1, len(before) - before.rfind("\n"), message)
        for offset, message in wrong
        if offset is not None
        for before in (expression[:offset],)
    ]
    if not problems:
        return wrong[0].message
    return "compilation failed: " + "\n".join(problem.shown(lines) for problem in problems)


@lru_cache(maxsize=1024)
def _can_be_called(function: str, text: str) -> bool:
    cel = library()
    called = cel.NewEnv(variables={}).compile(f"{function}({json.dumps(text, ensure_ascii=False)})").eval()
    return bool(called.type() != cel.Type.ERROR)


def _declaration(cel: Any, name: str, overloads: Functions) -> Any:
    return cel.FunctionDecl(
        name,
        [
            cel.Overload(
                f"{name}_{index}",
                getattr(cel.Type, overload.returns),
                [getattr(cel.Type, kind) for kind in overload.parameters],
                overload.is_member,
                overload.function,
            )
            for index, overload in enumerate(overloads)
        ],
    )


def library() -> Any:
    try:
        from cel_expr_python import cel  # type: ignore[import-untyped] # it is untyped
    except ImportError as error:
        raise ConfigurationError(
            f"CEL expressions need cel-expr-python: {how_to_install('apiserver')} ({error})"
        ) from error
    return cel


def _type(cel: Any, name: str) -> Any:
    """Parses a type in the form of `Program.returns`. An unknown type is `dyn`."""
    if name.startswith("list(") and name.endswith(")"):
        return cel.Type.List(_type(cel, name[5:-1]))
    if name == "map(string, string)":
        return cel.Type.Map(cel.Type.STRING, cel.Type.STRING)
    return getattr(cel.Type, name.upper() if name in _SIMPLE else "DYN")


_SIMPLE = frozenset(("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"))


def _type_name(kind: Any) -> str:
    name = str(kind.name()).lower()
    return {"null": "null_type"}.get(name, name.replace("<", "(").replace(">", ")"))


_TOO_LARGE = "out of range for"
"""Told of an integer that does not fit 64 bits, which is a float to Go."""
_CODE = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_WORDS = (
    (re.compile(r'^Key not found in map : "?(.*?)"?$', re.S), r"no such key: \1"),
    (re.compile(r"^Index error: index=(-?\d+).*", re.S), r"index out of bounds: \1"),
    (re.compile(r"^divide by zero$"), "division by zero"),
    (re.compile(r"^modulus by zero$"), "modulus by zero"),
    (
        re.compile(r"^(No matching overloads found|Applying SELECT to non-message type).*", re.S),
        "no such overload",
    ),
)


def _runtime_words(text: str) -> str:
    text = _CODE.sub("", text)
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text
