"""What is not plain storage: kinds that are only asked questions, and subresources with ways of their own.

A `Special` answers one request as steps, like the verbs of the model. The tables are filled by the modules
that know the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubeshard.apiserver.front.gate import Gate
from kubeshard.apiserver.front.requests import Request
from kubeshard.apiserver.identity.user import User
from kubeshard.apiserver.model import Answer, Target
from kubeshard.apiserver.server import ApiServer
from kubeshard.apiserver.steps import Steps
from kubeshard.core.kinds import GroupResource


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
