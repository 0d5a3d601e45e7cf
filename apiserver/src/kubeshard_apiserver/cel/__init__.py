"""Kubernetes' dialect of the Common Expression Language: expressions are compiled once and evaluated with variables.

The language itself is Google's implementation (`cel-expr-python`), with the extensions of release 1.37: optionals,
strings, sets, lists and two-variable comprehensions. Kubernetes' own functions are added here. docs/apiserver.md lists
what is missing compared with the real server.
"""

from kubeshard_apiserver.cel.program import CelError, Program, compile_expression

__all__ = ["CelError", "Program", "compile_expression"]
