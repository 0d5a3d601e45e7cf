"""Who asks, and what they may do."""

from kubeshard_apiserver.identity.user import ADMINISTRATOR, User

__all__ = ["ADMINISTRATOR", "User"]
