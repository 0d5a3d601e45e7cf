"""Scopes: which objects of a kind a cache contains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kubeshard.core.hash_ranges import HASHES, HashRanges
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import FieldSelector, Selector

ALL_NAMESPACES = ""
"""Stands for all namespaces where a list/watch is cluster-wide; no namespace has this name."""

EVERYTHING = Selector.everything()
ANY_FIELDS = FieldSelector.everything()


class Part(NamedTuple):
    """What one list/watch feeds: a namespace, or all of them; of that everything, or the objects with some hashes."""

    namespace: str = ALL_NAMESPACES
    hashes: HashRanges | None = None

    def may_contain(self, metadata: ObjectMeta) -> bool:
        """False if the object is certainly not in it: metadata may lack what is hashed."""
        if self.namespace not in (ALL_NAMESPACES, metadata.namespace):
            return False
        return self.hashes is None or self.hashes.may_select(metadata)

    def may_have(self, namespace: str, uid: str) -> bool:
        """False if no object with this uid, "" for any, is in it whose other metadata are not known."""
        if self.namespace not in (ALL_NAMESPACES, namespace):
            return False
        return self.hashes is None or self.hashes.may_have(namespace, uid)


Parts = Mapping[str, Part]
"""Parts by their names. A part that is a whole namespace is called like it. One with hashes keeps its name while other
hashes come to it or leave it.
"""


def whole(namespaces: Iterable[str]) -> Parts:
    """These namespaces, or ALL_NAMESPACES."""
    return {namespace: Part(namespace) for namespace in namespaces}


@dataclass(frozen=True, slots=True)
class Scope:
    """A subset of the objects of a kind, by namespaces, labels, fields and hashes. Hashable: informers are shared by
    scope.

    `namespaces`: `ALL` uses one list/watch; a set uses one list/watch per namespace and needs RBAC only in these
    namespaces. Ignored for cluster-scoped kinds. `hashes`: only objects with these hashes, whether the server filters
    by them or not; ranges without any hash select nothing, and nothing is requested.
    """

    namespaces: frozenset[str] | AllNamespaces = ALL
    labels: Selector = EVERYTHING
    fields: FieldSelector = ANY_FIELDS
    hashes: HashRanges | None = None

    def __post_init__(self) -> None:
        for name, given, wanted, instead in (
            ("namespaces", self.namespaces, frozenset | AllNamespaces, 'frozenset({"default"}) or ALL'),
            ("labels", self.labels, Selector, 'Selector.parse("app=web")'),
            ("fields", self.fields, FieldSelector, 'FieldSelector.parse("metadata.name=web")'),
            ("hashes", self.hashes, HashRanges | None, 'HashRanges.of("uid", ranges)'),
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
        if self.hashes is not None:
            share = sum(end - start for start, end in self.hashes.ranges) / HASHES
            parts.append(f"{share:.1%} of the hashes by {self.hashes.field}")
        return "; ".join(parts)

    def parts(self, kind: Kind) -> tuple[str, ...]:
        """The namespaces to list and watch one by one, or only ALL_NAMESPACES. Empty if the scope selects nothing."""
        if self.hashes is not None and not self.hashes:
            return ()
        if self.namespaces is ALL or not kind.namespaced:
            return (ALL_NAMESPACES,)
        return tuple(sorted(self.namespaces))

    def covers(self, kind: Kind, namespace: str) -> bool:
        """Whether objects in the namespace can be in this scope at all."""
        return self.namespaces is ALL or not kind.namespaced or namespace in self.namespaces

    def may_select(self, kind: Kind, metadata: ObjectMeta) -> bool:
        """Whether the object may be in this scope. Of field selectors, only name and namespace are evaluated."""
        if not self.covers(kind, metadata.namespace) or not self.labels.matches(metadata.labels):
            return False
        if self.hashes is not None and not self.hashes.may_select(metadata):
            return False
        known = {"metadata.name": metadata.name, "metadata.namespace": metadata.namespace}
        return all(
            (known[term.path] == term.value) is not term.negated
            for term in self.fields.requirements
            if term.path in known
        )

    @property
    def judged_by_metadata(self) -> bool:
        """Whether `may_select` is exact when it returns True for complete metadata."""
        return all(term.path in ("metadata.name", "metadata.namespace") for term in self.fields.requirements)
