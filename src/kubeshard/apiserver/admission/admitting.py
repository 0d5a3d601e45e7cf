"""The place in every write where admission is asked."""

from __future__ import annotations

from kubeshard.apiserver.identity.user import User
from kubeshard.apiserver.model import Model, Target
from kubeshard.apiserver.objects import Object
from kubeshard.apiserver.steps import Steps


class Admitting(Model):
    def _admitted(
        self,
        operation: str,
        target: Target,
        new: Object | None,
        old: Object | None,
        user: User,
        dry_run: bool,
    ) -> Steps[Object | None]:
        """The object as admission leaves it. `operation` is CREATE, UPDATE or DELETE."""
        yield from ()
        return new
