"""Errors that questions about a ring raise: one line that says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from kubeshard.core.errors import Forbidden, KubeshardError
from kubeshard.core.kinds import GroupResource


class Unanswerable(KubeshardError):
    """The question cannot be answered in the cluster's current state. The message is one line."""


class MissingRight(Unanswerable):
    """The user may not read something. `rule` is the RBAC rule that would allow it."""

    def __init__(self, verb: str, resource: GroupResource, user: str = "") -> None:
        self.rule = (
            f'{{apiGroups: ["{resource.group}"], resources: ["{resource.resource}"], verbs: ["{verb}"]}}'
        )
        super().__init__(f"{user or 'you'} may not {verb} {resource}: ask for the rule {self.rule}")


@contextmanager
def needing(verb: str, resource: GroupResource) -> Iterator[None]:
    """Raises MissingRight in place of Forbidden."""
    try:
        yield
    except Forbidden as error:
        raise MissingRight(verb, resource) from error


def unknown(what: str, name: str, known: Iterable[str]) -> Unanswerable:
    names = sorted(known)
    if close := get_close_matches(name, names, n=3, cutoff=0.5):
        return Unanswerable(f"there is no {what} {name}; did you mean {' or '.join(close)}?")
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return Unanswerable(
        f"there is no {what} {name}" + (f"; there are: {shown}" if names else ", nor any other")
    )
