"""Users, the actions they request, and the interface that decides whether they may perform them."""

from kubeshard_apiserver.access.user import ADMINISTRATOR, User

__all__ = ["ADMINISTRATOR", "User"]
