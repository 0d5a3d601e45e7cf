"""The gate: authentication and authorization of a request.

The front calls it once for every request, before anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kubeshard_apiserver.access.authorizer import Attributes
from kubeshard_apiserver.access.user import ADMINISTRATOR, User
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.model import EVERY_RIGHT, Rights


@dataclass(frozen=True)
class Peer:
    """What the connection reveals about the client. `certificate` is its verified certificate, in DER."""

    certificate: bytes = b""


UNKNOWN = Peer()


class Gate(Protocol):
    @property
    def rights(self) -> Rights:
        """The authorization checks that are made while a request is being processed."""
        ...

    def enter(self, request: Request, attributes: Attributes, peer: Peer) -> User:
        """Authenticates and authorizes a request, and returns its user. Raises ApiError: 401 if the user is unknown,
        403 if the request is not allowed.
        """
        ...


class Open:
    """A gate that treats every client as the administrator; for tests in one process."""

    rights = EVERY_RIGHT

    def enter(self, request: Request, attributes: Attributes, peer: Peer) -> User:
        return ADMINISTRATOR
