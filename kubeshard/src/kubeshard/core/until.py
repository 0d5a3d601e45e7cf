"""Conditions for `kubeshard.wait_for`: on an object, or on its absence.

    await wait_for(client, app, until.ready, timeout=60)
    await wait_for(client, app, until.condition("Synced") & ~until.condition("Degraded"), timeout=60)
    await wait_for(client, app, until.deleted(app.metadata.uid), timeout=60)
    await wait_for(client, app, until.holds("has a URL", lambda app: app.status.url != ""), timeout=60)

They are stateless values: combine them with `&`, `|` and `~`, and reuse them freely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kubeshard.core.documents import Path, at, document_of, require_declared
from kubeshard.core.objects import KubeObject
from kubeshard.core.readiness import Readiness, can_be_judged, generation_of, is_ready

__all__ = ["WaitCondition", "condition", "deleted", "exists", "failed", "holds", "ready"]


def _nothing(_: type[KubeObject]) -> None:
    """Accepts any class."""


@dataclass(frozen=True, slots=True)
class WaitCondition:
    """`met` gets each state of the object, and None if there is none. `text` continues "not ...", `seen` says what it
    is instead. `check` raises TypeError for a class without the fields that are needed.
    """

    text: str
    met: Callable[[Any], bool]
    seen: Callable[[Any], str]
    check: Callable[[type[KubeObject]], None] = _nothing

    def __and__(self, other: WaitCondition) -> WaitCondition:
        return self._with(other, "and", lambda obj: self.met(obj) and other.met(obj))

    def __or__(self, other: WaitCondition) -> WaitCondition:
        return self._with(other, "or", lambda obj: self.met(obj) or other.met(obj))

    def __invert__(self) -> WaitCondition:
        return WaitCondition(f"not {self.text}", lambda obj: not self.met(obj), self.seen, self.check)

    def _with(self, other: WaitCondition, word: str, met: Callable[[Any], bool]) -> WaitCondition:
        def seen(obj: Any) -> str:
            return "; ".join(dict.fromkeys((self.seen(obj), other.seen(obj))))

        def check(type_: type[KubeObject]) -> None:
            self.check(type_)
            other.check(type_)

        return WaitCondition(f"({self.text} {word} {other.text})", met, seen, check)


def _presence(obj: KubeObject | None) -> str:
    if obj is None:
        return "there is no such object"
    return "it is being deleted" if obj.metadata.deleting else "it is there"


exists = WaitCondition("there", lambda obj: obj is not None, _presence)
"""The object exists, whatever its state; also while it is being deleted."""


def deleted(uid: str = "") -> WaitCondition:
    """The object does not exist. With a UID: that object is gone, even if one of the same name was re-created."""

    def gone(obj: KubeObject | None) -> bool:
        return obj is None or (uid != "" and obj.metadata.uid != uid)

    return WaitCondition("deleted", gone, _presence)


def _readiness(states: Sequence[str]) -> Callable[[Any], bool]:
    return lambda obj: is_ready(obj).state in states


def _state_of(obj: Any) -> str:
    found: Readiness = is_ready(obj)
    return f"{found.state}: {found.message}"


ready = WaitCondition("ready", _readiness(("Current",)), _state_of, can_be_judged)
"""`is_ready` is true. The object's class must declare the fields that it reads: else `wait_for` raises immediately."""

failed = WaitCondition("failed", _readiness(("Failed",)), _state_of, can_be_judged)
"""It will not become ready without a change: `until.ready | until.failed` ends the wait in either case."""


def condition(type: str, status: str = "True") -> WaitCondition:
    """The object has a condition of the type in `status.conditions` with that status. One about an earlier generation
    of the object is ignored. Which one it is about is its `observedGeneration` or, without one, that of the status.
    """
    reads: Sequence[Path] = (("status", "conditions", "type"), ("status", "conditions", "status"))

    def find(obj: KubeObject | None) -> tuple[Any, int | None]:
        """The condition, and the generation it is about, if that is an earlier one."""
        if obj is None:
            return None, None
        said = at(document_of(obj, reads), "status")
        found = (item for item in at(said, "conditions", default=()) if item.get("type") == type)
        item: Any = next(found, {})
        about = generation_of(item) or generation_of(said)
        return item or None, about if about is not None and about < obj.metadata.generation else None

    def met(obj: KubeObject | None) -> bool:
        item, earlier = find(obj)
        return item is not None and item.get("status") == status and earlier is None

    def seen(obj: KubeObject | None) -> str:
        item, earlier = find(obj)
        if obj is None or item is None:
            return _presence(obj) if obj is None else f"it has no condition {type}"
        about = "" if earlier is None else f" of generation {earlier}"
        why = ": ".join(word for word in (item.get("reason"), item.get("message")) if word)
        return f"{type}{about} is {item.get('status')}{f' ({why})' if why else ''}"

    return WaitCondition(f"{type}={status}", met, seen, lambda type_: require_declared(type_, reads))


def holds(text: str, test: Callable[[Any], bool]) -> WaitCondition:
    """The object exists, and passes the test; `text` describes the test: "has a URL"."""
    return WaitCondition(text, lambda obj: obj is not None and test(obj), _presence)
