"""Custom resources: objects of a kind that a CustomResourceDefinition declares, in one of its versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.apiserver.apply.shape import Path
from kubeshard.apiserver.objects import Object
from kubeshard.apiserver.resources.scale_paths import ScalePaths
from kubeshard.apiserver.resources.strategy import Strategy
from kubeshard.apiserver.schema import fill, prune, validate
from kubeshard.apiserver.status import FieldError, bad_request, shown
from kubeshard.core.kinds import Kind


class CustomResources(Strategy):
    """Pruned and defaulted when decoded, validated by the schema; `status` belongs to the subresource where
    there is one.
    """

    unconditional_update = False
    qualified_finalizers = False
    counts_generations = True
    typed_items = True
    is_custom = True

    def __init__(
        self,
        kind: Kind,
        schema: Mapping[str, Any],
        *,
        subresources: frozenset[str],
        selectable: tuple[str, ...] = (),
        scales: ScalePaths | None = None,
    ) -> None:
        super().__init__(kind, schema, subresources=subresources)
        self.scales = scales
        self.selectable = (*Strategy.selectable, *selectable)
        properties = schema.get("properties") or {}
        self._root = {
            **schema,
            "properties": {name: inner for name, inner in properties.items() if name not in _IMPLICIT},
        }

    def decode(self, obj: Object) -> list[str]:
        kind = self.kind
        if not obj.get("kind") or not obj.get("apiVersion"):
            missing = "Kind" if not obj.get("kind") else "apiVersion"
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): Object '{missing}' is missing "
                f"in '{shown(obj)}'"
            )
        if obj["apiVersion"] != kind.api_version:
            raise bad_request(
                f"the API version in the data ({obj['apiVersion']}) does not match the expected API version "
                f"({kind.api_version})"
            )
        dropped = self.decode_metadata(obj)
        fields = {name: value for name, value in obj.items() if name not in _IMPLICIT}
        for name in fields:
            del obj[name]
        dropped += prune(self._root, fields)
        fill(self._root, fields)
        obj.update(fields)
        return dropped

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        if subresource == "status":
            managed = new["metadata"].get("managedFields")
            new["metadata"] = {**old["metadata"], "resourceVersion": new["metadata"].get("resourceVersion")}
            if managed is not None:
                new["metadata"]["managedFields"] = managed
        super().prepare_update(new, old, subresource)

    def resets(self, subresource: str, path: Path) -> bool:
        if subresource == "status":
            return path[0] != "f:status"
        return super().resets(subresource, path)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate(self._root, {name: value for name, value in obj.items() if name not in _IMPLICIT})

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource != "status":
            return self.validate(new)
        # Only the status is looked at, and the messages count paths from there.
        errors = validate((self._root.get("properties") or {}).get("status") or {}, new.get("status") or {})
        return [error._replace(path=f"status.{error.path}" if error.path else "status") for error in errors]

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"


_IMPLICIT = ("apiVersion", "kind", "metadata")
