"""What is not plain storage: kinds that are only asked questions, and subresources with ways of their own.

A `Special` answers one request as steps, like the verbs of the model. The tables are filled by the modules
that know the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.front.gate import Gate
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.identity.user import User
from kubeshard_apiserver.model import Answer, Target
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.steps import Steps


@dataclass(frozen=True)
class Question:
    """`request.method` has been checked against nothing: raise `method_not_allowed` for what is not served."""

    server: ApiServer
    gate: Gate
    target: Target
    request: Request
    user: User


Special = Callable[[Question], Steps[Answer]]

REVIEWS: dict[GroupResource, Special] = {}
"""Kinds without storage: a create is answered, nothing is kept."""

SUBRESOURCES: dict[str, Special] = {}
"""By name, for every resource that declares it in its strategy. `status` and `finalize` are the model's."""
