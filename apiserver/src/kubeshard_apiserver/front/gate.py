"""The door: who may come in, and with what wish.

The front asks the gate once for every request, before anything else happens.
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
    """What the connection says of its other end. `certificate` is the verified one of the client, in DER."""

    certificate: bytes = b""


UNKNOWN = Peer()


class Gate(Protocol):
    @property
    def rights(self) -> Rights:
        """What decides, in the course of a request, what its user may do."""
        ...

    def enter(self, request: Request, attributes: Attributes, peer: Peer) -> User:
        """Raises ApiError: 401 for who cannot be told, 403 for what is not allowed."""
        ...


class Open:
    """Everybody is the administrator: for tests in one process."""

    rights = EVERY_RIGHT

    def enter(self, request: Request, attributes: Attributes, peer: Peer) -> User:
        return ADMINISTRATOR
