"""How a program ends after a fatal error: a human-readable line and an exit code.

| error | code | the line |
|---|---|---|
| ConfigurationError | 2 | its message, which says what to do |
| Unprepared | 1 | its message, which says what to do |
| RightLost | 1 | its message; started again, the program is a candidate again |
| Unauthorized | 1 | the credentials are rejected, and which ones to renew |
| Unavailable, Timeout without a response | 1 | the cluster cannot be reached, and at which address |
| Forbidden | 1 | the server's message, which names user, verb and resource; the role or credentials that are missing |
| any other KubeshardError | 1 | its class and message |
"""

from __future__ import annotations

from typing import NamedTuple

from kubeshard.core.errors import (
    ANONYMOUS,
    NO_CREDENTIALS,
    ApiError,
    ConfigurationError,
    Forbidden,
    Invalid,
    KubeshardError,
    Timeout,
    Unauthorized,
    Unavailable,
    Unprepared,
)
from kubeshard.manager.membership import RightLost
from kubeshard.runtime.logs import error_line, one_line


class Ending(NamedTuple):
    code: int
    line: str


def ending_of(error: KubeshardError) -> Ending:
    """The exit code and line for an error: see the table."""
    if isinstance(error, ConfigurationError):
        return Ending(2, f"Error: {error}")
    return Ending(1, f"Error: {_explained(error)}")


def _explained(error: KubeshardError) -> str:
    said = one_line(str(error))
    match error:
        case Unprepared() | RightLost():
            return said
        case Unauthorized():
            return (
                f"the cluster refuses the credentials ({said}): log in again, or renew the token or certificate "
                "in the kubeconfig (in a pod: check its service account)"
            )
        case Forbidden() if ANONYMOUS in said:
            return f"{said}; {NO_CREDENTIALS}"
        case Forbidden():
            return f"{said}; bind a role that grants this to the user, or use another one"
        case Unavailable(code=0) | Timeout(code=0):
            return (
                f"cannot reach the cluster ({said}): check the server and the certificate authority in the kubeconfig, "
                "the network and the proxy"
            )
        case ApiError(code=code) if code >= 500 and not isinstance(error, Invalid):
            return f"the cluster is in trouble ({error_line(error)}): try again later"
        case _:
            return error_line(error)
