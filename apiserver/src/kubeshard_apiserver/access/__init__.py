"""Users, what they want to do, and who decides whether they may."""

from kubeshard_apiserver.access.user import ADMINISTRATOR, User

__all__ = ["ADMINISTRATOR", "User"]
