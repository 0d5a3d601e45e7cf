"""The interface of what answers requests beyond plain storage: of kinds that are not stored, and of subresources with
their own behaviour.

A `Handler` answers a request as steps, like the verbs of the model. `handlers` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kubeshard_apiserver.access import User
from kubeshard_apiserver.front.gate import Gate
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.model import Answer, Target, WriteOptions
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.steps import Steps
from kubeshard_apiserver.verbs.deleting import DeleteOptions


class HandlerContext(NamedTuple):
    """A request to a `Handler`. `request.method` is unchecked: raise `method_not_allowed` for a method that is not
    served.
    """

    server: ApiServer
    gate: Gate
    target: Target
    request: Request
    user: User

    def write_options(self, options_kind: str) -> WriteOptions:
        """Returns the write options of the request and its user."""
        return self.request.write_options(options_kind, self.user, self.gate.rights)

    def delete_options(self) -> DeleteOptions:
        return self.request.delete_options(self.user, self.gate.rights)


Handler = Callable[[HandlerContext], Steps[Answer]]
