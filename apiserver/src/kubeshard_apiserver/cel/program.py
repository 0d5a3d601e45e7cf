"""Expressions: compiled with the names of the available variables, and evaluated with their values.

Guaranteed: compilation finds unknown names, syntax errors and operands whose types cannot match; errors are worded as
on the real server. Values are JSON-serializable and are not modified. Not guaranteed: errors that can be found only
with a schema, such as an unknown field, because a variable may have any value.

Requires cel-expr-python; if it is missing, the first compilation raises an error that says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install
from kubeshard_apiserver.cel.compiler_words import compiler_words
from kubeshard_apiserver.cel.library import EXTENSIONS, Functions, functions


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
    compiled, returns = checked(_environment(names), expression)
    error = library().Type.ERROR

    def evaluate(variables: Mapping[str, Any]) -> Any:
        try:
            value = compiled.eval(data=variables)
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


def checked(env: Any, expression: str) -> tuple[Any, str]:
    """Returns the compiled expression and the type of its result. Raises CelError."""
    try:
        compiled = env.compile(expression)
        return compiled, _type_name(compiled.return_type())
    except RuntimeError as problem:
        words = compiler_words(_CODE.sub("", str(problem)), expression)
        raise CelError(f"compilation failed: {words}") from None


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
