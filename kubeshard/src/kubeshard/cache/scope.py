"""Scopes: which objects of a kind a cache contains."""

from __future__ import annotations

from dataclasses import dataclass

from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import FieldSelector, Selector

ALL_NAMESPACES = ""
"""The part of a store that a cluster-wide list/watch feeds; no namespace has this name."""

EVERYTHING = Selector.everything()
ANY_FIELDS = FieldSelector.everything()


@dataclass(frozen=True, slots=True)
class Scope:
    """A subset of the objects of a kind, by namespaces, labels and fields. Hashable: informers are shared by
    scope.

    `namespaces`: `ALL` uses one list/watch; a set uses one list/watch per namespace and needs RBAC only in these
    namespaces. Ignored for cluster-scoped kinds.
    """

    namespaces: frozenset[str] | AllNamespaces = ALL
    labels: Selector = EVERYTHING
    fields: FieldSelector = ANY_FIELDS

    def __post_init__(self) -> None:
        for name, given, wanted, instead in (
            ("namespaces", self.namespaces, frozenset | AllNamespaces, 'frozenset({"default"}) or ALL'),
            ("labels", self.labels, Selector, 'Selector.parse("app=web")'),
            ("fields", self.fields, FieldSelector, 'FieldSelector.parse("metadata.name=web")'),
        ):
            if not isinstance(given, wanted):
                raise TypeError(f"Scope({name}={given!r}): give {instead}")

    def __str__(self) -> str:
        """A human-readable form: `all namespaces; labels app=web`."""
        where = ALL.value if self.namespaces is ALL else ", ".join(sorted(self.namespaces))
        parts = [where or "no namespaces"]
        if self.labels.requirements:
            parts.append(f"labels {self.labels}")
        if self.fields:
            parts.append(f"fields {self.fields}")
        return "; ".join(parts)

    def parts(self, kind: Kind) -> tuple[str, ...]:
        """The namespaces to list and watch one by one, or only ALL_NAMESPACES."""
        if self.namespaces is ALL or not kind.namespaced:
            return (ALL_NAMESPACES,)
        return tuple(sorted(self.namespaces))

    def covers(self, kind: Kind, namespace: str) -> bool:
        """Whether objects in the namespace can be in this scope at all."""
        return self.namespaces is ALL or not kind.namespaced or namespace in self.namespaces

    def may_select(self, kind: Kind, metadata: ObjectMeta) -> bool:
        """False if the object is certainly not in this scope. Only field selectors on name and namespace can be
        evaluated here; others count as matching.
        """
        if not self.covers(kind, metadata.namespace) or not self.labels.matches(metadata.labels):
            return False
        known = {"metadata.name": metadata.name, "metadata.namespace": metadata.namespace}
        return all(
            (known[term.path] == term.value) is not term.negated
            for term in self.fields.requirements
            if term.path in known
        )

    @property
    def judged_by_metadata(self) -> bool:
        """Whether `may_select` is exact when it returns True."""
        return all(term.path in ("metadata.name", "metadata.namespace") for term in self.fields.requirements)
