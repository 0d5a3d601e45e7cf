"""What is not plain storage: kinds that are only asked questions, and subresources with ways of their own.

A `Special` answers one request as steps, like the verbs of the model. Which there are is said in `specials`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kubeshard_apiserver.access.user import User
from kubeshard_apiserver.front.gate import Gate
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.model import Answer, Target, WriteOptions
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.steps import Steps
from kubeshard_apiserver.verbs.deleting import DeleteOptions


@dataclass(frozen=True)
class Question:
    """`request.method` has been checked against nothing: raise `method_not_allowed` for what is not served."""

    server: ApiServer
    gate: Gate
    target: Target
    request: Request
    user: User

    def write_options(self, options_kind: str) -> WriteOptions:
        """As the request and its user have it."""
        given = self.request.write_options(options_kind)
        return replace(given, user=self.user, rights=self.gate.rights)

    def delete_options(self) -> DeleteOptions:
        return replace(self.request.delete_options(), user=self.user, rights=self.gate.rights)


Special = Callable[[Question], Steps[Answer]]
