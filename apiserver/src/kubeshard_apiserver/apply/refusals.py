"""Refusals of what is to be applied and does not fit its kind. They are errors of the server (500): it does not
foresee them.
"""

from __future__ import annotations

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind
from kubeshard_apiserver.apply.mistakes import mistakes
from kubeshard_apiserver.apply.shape import Shape
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.status import internal


def check_fits(kind: Kind, shape: Shape, config: Object) -> None:
    """Raises ApiError (500)."""
    if problems := mistakes(shape, config):
        problem = problems[0] if len(problems) == 1 else "\n  ".join(("errors:", *problems))
        raise internal(f"failed to create typed patch object {_where(kind, config)}: {problem}")


def inconvertible(kind: Kind, config: Object, problem: str) -> ApiError:
    """What fits its type but does not say anything of it: not base64, no quantity."""
    told = problem.removeprefix(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
    )
    if told.startswith("illegal base64"):
        told = f"error decoding from json: {told}"
    told = f"unable to convert unstructured object to {_version(kind)}: {told}"
    return internal(f"failed to convert new object {_where(kind, config)} to proper version: {told}")


def _where(kind: Kind, config: Object) -> str:
    meta = config["metadata"]
    return f"({meta.get('namespace', '')}/{meta['name']}; {_version(kind)})"


def _version(kind: Kind) -> str:
    return f"{kind.api_version if kind.group else f'/{kind.version}'}, Kind={kind.kind}"
