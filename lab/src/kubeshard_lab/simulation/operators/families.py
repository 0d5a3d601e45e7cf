"""To which reconciled object each stored one belongs: children are told by their owner references."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from kubeshard.core.kinds import GroupResource


class Families:
    """The name of a family is that of its top object. `resources`: of the objects that are reconciled."""

    def __init__(self, resources: Collection[GroupResource]) -> None:
        self._resources = resources
        self._names: dict[str, str] = {}

    def name(self, resource: GroupResource, obj: Any) -> str:
        """The family of the object; empty if nobody reconciles it or its owner."""
        metadata = obj["metadata"]
        uid = metadata.get("uid", "")
        if uid in self._names:
            return self._names[uid]
        name = self._names.get(controller_uid(metadata), "")
        if not name and resource in self._resources:
            name = metadata.get("name", "")  # an object whose name the server is to generate has none yet
        if name and uid:
            self._names[uid] = name
        return name

    def named_in(self, text: str) -> str:
        """The first family that the text names; empty if it names none."""
        names = {*self._names.values()}
        words = re.findall(r"[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?", text)
        return next((word for word in words if word in names), "")


def controller_uid(metadata: Any) -> str:
    references = metadata.get("ownerReferences") or ()
    return next((str(each.get("uid", "")) for each in references if each.get("controller")), "")
