"""Whether an object has reached its desired state, by the common rules of the ecosystem (kstatus).

| state | means |
|---|---|
| `Current` | the desired state is reached |
| `InProgress` | a controller is working on it, or has not observed its newest generation |
| `Failed` | it will not become current without a change |
| `Terminating` | it is being deleted |
| `NotFound` | the object does not exist |

Checked in this order: a deletion; a `status.observedGeneration` that is not the object's; the conditions `Reconciling`
(in progress) and `Stalled` (failed); the rules of the kind (`kubeshard.core.workloads`), if it has any; the condition
`Ready`; and without any of these the object is current.

Two differences from kstatus: a failed pod is `Failed`, and one that cannot be scheduled stays `InProgress`, because
a node may be added and nothing here reads a clock. As in kstatus, a Job is current as soon as it has started: to wait
for its completion, wait for its condition `Complete`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kubeshard.core.documents import Path, at, document_of, require_declared
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import KubeObject
from kubeshard.core.workloads import RULES, Verdict

State = Literal["Current", "InProgress", "Failed", "Terminating", "NotFound"]

_CONDITIONS: Sequence[Path] = (("status", "conditions", "type"), ("status", "conditions", "status"))


class Readiness(NamedTuple):
    """The result of `is_ready`; true in a boolean context if the state is `Current`. `message` is for people."""

    state: State
    message: str = ""

    def __bool__(self) -> bool:
        return self.state == "Current"


def is_ready(obj: KubeObject | Mapping[str, Any] | None) -> Readiness:
    """The state of an object or a manifest; `NotFound` for None.

    Raises TypeError if the object's class does not declare the fields that the rules of its kind read: at least
    `status.conditions`.
    """
    if obj is None:
        return Readiness("NotFound", "there is no such object")
    kind = _kind_of(obj)
    rule = RULES.get(kind)
    document = document_of(obj, _CONDITIONS if rule is None else rule.reads)
    generic = _generic(document)
    if generic is not None:
        return generic
    found = rule.judge(document) if rule is not None else _by_ready_condition(document)
    return Readiness(*found)


def can_be_judged(type_: type[KubeObject]) -> None:
    """Raises TypeError if `is_ready` would for every object of the class."""
    rule = RULES.get(type_.KIND.group_kind)
    require_declared(type_, _CONDITIONS if rule is None else rule.reads)


def _kind_of(obj: KubeObject | Mapping[str, Any]) -> GroupKind:
    if isinstance(obj, Mapping):
        return GroupKind(str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", "")))
    return obj.KIND.group_kind


def _generic(document: Mapping[str, Any]) -> Readiness | None:
    """The rules for all kinds; None if they do not decide."""
    if at(document, "metadata", "deletionTimestamp"):
        return Readiness("Terminating", "it is being deleted")
    generation, observed = (
        at(document, "metadata", "generation"),
        at(document, "status", "observedGeneration"),
    )
    if generation and observed is not None and observed != generation:
        return Readiness("InProgress", f"generation {generation} has not been observed yet, {observed} has")
    for condition in _true(document, ("Reconciling", "Stalled")):
        state: State = "InProgress" if condition.get("type") == "Reconciling" else "Failed"
        return Readiness(state, _words_of(condition))
    return None


def _by_ready_condition(document: Mapping[str, Any]) -> Verdict:
    for condition in _conditions(document):
        if condition.get("type") != "Ready":
            continue
        generation, observed = at(document, "metadata", "generation"), condition.get("observedGeneration")
        if generation and observed and observed < generation:
            return "InProgress", f"its condition Ready is about generation {observed}, not {generation}"
        return "Current" if condition.get("status") == "True" else "InProgress", _words_of(condition)
    return "Current", "nothing says that it is not"


def _true(document: Mapping[str, Any], types: Sequence[str]) -> Iterable[Mapping[str, Any]]:
    return (
        condition
        for condition in _conditions(document)
        if condition.get("type") in types and condition.get("status") == "True"
    )


def _conditions(document: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    found = at(document, "status", "conditions", default=())
    return (item for item in found if isinstance(item, Mapping)) if isinstance(found, list | tuple) else ()


def _words_of(condition: Mapping[str, Any]) -> str:
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    return f"{reason}: {message}" if reason and message else reason or message
