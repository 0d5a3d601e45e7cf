"""Who asks, for what, and who decides whether they may."""

from kubeshard_apiserver.access.user import ADMINISTRATOR, User

__all__ = ["ADMINISTRATOR", "User"]
