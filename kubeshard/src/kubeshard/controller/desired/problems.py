"""Errors of desired sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeshard.cache.errors import CacheBehind
from kubeshard.controller.desired.applyset import Address
from kubeshard.core.errors import AlreadyExists, Conflict, FieldConflict, Forbidden, KubeshardError, Terminal


class NotAdopted(KubeshardError):
    """An object with that name exists already, and must not become a member of the set."""


class ImmutableFields(Terminal):
    """The API server refuses the update of an object, but would accept the desired object as a new one."""


class ApplyFailed(ExceptionGroup[Exception]):
    """Some objects of a set were not applied or not deleted; `problems` names them. The others were applied. Nothing
    is deleted unless everything was applied.
    """

    problems: Mapping[Address, Exception]

    def __new__(cls, whose: str, problems: Mapping[Address, Exception]) -> ApplyFailed:
        text = "; ".join(f"{address}: {error}" for address, error in problems.items())
        if any(isinstance(error, Forbidden) for error in problems.values()):
            text += "; grant it: `kubeshard rbac` prints what is needed"
        failed = super().__new__(cls, f"{whose}: {text}", list(problems.values()))
        failed.problems = dict(problems)
        return failed

    def derive(self, excs: Sequence[Exception], /) -> ExceptionGroup[Exception]:  # type: ignore[override]
        return ExceptionGroup(self.message, excs)

    def __str__(self) -> str:
        return self.message


def raise_for(whose: str, problems: Mapping[Address, Exception]) -> None:
    """Raises ApplyFailed if there are problems. If all of them come from stale reads, raises the first one itself, so
    that the run ends like any other with stale reads.
    """
    if not problems:
        return
    if all(is_stale(error) for error in problems.values()):
        raise next(iter(problems.values()))
    raise ApplyFailed(whose, problems)


def is_stale(error: Exception) -> bool:
    return isinstance(error, Conflict | AlreadyExists | CacheBehind) and not isinstance(error, FieldConflict)
