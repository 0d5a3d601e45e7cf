"""Objects as the rows of a Table, the form that `kubectl get` requests.

Guaranteed: cells are as kube-apiserver prints them at the time of the response; each row contains as much of its
object as `includeObject` requests; a response contains column definitions once, and a watch contains them only in its
first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kubeshard_apiserver.front.documents import list_metadata, partial
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing import Printer
from kubeshard_apiserver.status import bad_request
from kubeshard_apiserver.verbs.reading import Page
from kubeshard_apiserver.verbs.watching import INITIAL_EVENTS_END

_INCLUDES = ("", "Metadata", "Object", "None")


class Tables:
    """Creates the Tables of one request. `version` is the version of the Table: v1 or v1beta1."""

    def __init__(self, printer: Printer, clock: Callable[[], float], version: str, include: str) -> None:
        self._printer = printer
        self._clock = clock
        self._api_version = f"meta.k8s.io/{version}"
        self._version = version
        self._include = include
        self._definitions: list[dict[str, Any]] | None = printer.definitions

    def of_object(self, obj: Object) -> dict[str, Any]:
        """Returns the Table of an object. All methods raise ApiError (400) for an unknown `includeObject`."""
        return self._table({"resourceVersion": obj["metadata"].get("resourceVersion", "")}, (obj,))

    def of_page(self, page: Page) -> dict[str, Any]:
        return self._table(list_metadata(page), page.items)

    def of_event(self, obj: Object) -> dict[str, Any]:
        table = self.of_object(obj)
        self._definitions = None
        return table

    def _table(self, metadata: dict[str, Any], objects: Iterable[Object]) -> dict[str, Any]:
        if self._include not in _INCLUDES:
            problem = f"""Invalid value: "{self._include}": must be 'Metadata', 'Object', 'None', or empty"""
            raise bad_request(f"Unable to convert to Table as requested: includeObject: {problem}")
        now = self._clock()
        rows = [{**self._printer.row(obj, now), "object": self._included(obj)} for obj in objects]
        return {
            "kind": "Table",
            "apiVersion": self._api_version,
            "metadata": metadata,
            "columnDefinitions": self._definitions,
            "rows": rows,
        }

    def _included(self, obj: Object) -> Object | None:
        if self._include == "Object":
            return obj
        annotations = obj["metadata"].get("annotations") or ()
        if self._include == "None" and INITIAL_EVENTS_END not in annotations:
            return None
        return partial(obj, self._version)
