"""The Common Expression Language as Kubernetes speaks it: compiled once, evaluated with variables.

The language is Google's implementation (`cel-expr-python`), with the extensions of release 1.36: optionals,
strings, sets, lists, comprehensions of two variables; Kubernetes' own functions are added here. docs/apiserver.md
lists what the real server has beyond this.
"""

from kubeshard_apiserver.cel.program import CelError, Program, compile_expression

__all__ = ["CelError", "Program", "compile_expression"]
