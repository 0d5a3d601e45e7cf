"""Fights: somebody else keeps undoing what a controller writes, and the controller keeps putting it right.

The same change of the same object, again and again, is a fight: with another operator, with an older release of this
one that runs without leader election, with a person. After FREE such repairs the object is put right once a minute
(`kubeshard.runtime.repairs`), and in between the run fails with `Contested`, which names the fields and who owns them
according to managedFields. So the log says it, and the condition of `Controller.error_condition`. A change that was not
made before is not delayed, nor is one to a field to which the same writer has given another value since: it changed its
mind, as a status does that is busy and idle in turn. The times of conditions make no such difference.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kubeshard.client.client import Client
from kubeshard.controller.merging import digest
from kubeshard.core.errors import ApiError, Retry
from kubeshard.core.objects import KubeObject
from kubeshard.core.patches import pointer
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.repairs import Repairs

FREE = 10
"""Equal repairs of one object without a pause of some minutes; people who try something out make fewer."""

SHOWN = 3
"""Fields that an error names."""


TOLD_AGAIN = 600.0
"""Seconds between two warnings about objects of one kind."""

MOST_FIELDS = 16_384
"""Fields whose last values are known; what was written least recently is forgotten first."""


class Repair(NamedTuple):
    """A change of an object, by UID. `fields`: digests of what is written, by writer, object and path."""

    uid: str
    what: int
    fields: Mapping[Hashable, int]


_log = get_logger("kubeshard.controller")


class Contested(Retry):
    """Somebody else keeps changing what the controller writes: it is written again in `after` seconds."""


class Contests:
    """The repairs of one controller."""

    def __init__(self, clock: Clock) -> None:
        self._repairs = Repairs(clock, free=FREE)
        self._notices = Notices(clock, every=TOLD_AGAIN)
        self._values: OrderedDict[Hashable, int] = OrderedDict()
        """What was last written to each field."""

    async def check(
        self, client: Client, live: KubeObject, patch: Mapping[str, Any], *, by: Hashable, wish: object = None
    ) -> Repair:
        """Called before the patch is sent; `wrote` gets the result afterwards. `by`: on whose behalf. `wish`: what the
        patch does not show of it. Raises Contested if it must not be sent yet.
        """
        uid, said, wished = live.metadata.uid, _without_times(patch), _without_times(wish)
        fields: dict[Hashable, int] = {(by, uid, path): digest(value) for path, value in _leaves(said)}
        fields[by, uid, None] = digest(wished)
        repair = Repair(uid, digest([said, wished]), fields)
        if any(self._values.get(field, value) != value for field, value in fields.items()):
            self._repairs.forget(repair[:2])
        wait = self._repairs.wait(repair[:2])
        if wait <= 0:
            return repair
        told = await _told(client, live, patch)
        if self._notices.due(live.KIND):
            _log.warning(
                "Somebody else keeps changing an object back; putting it right once a minute", told=told
            )
        raise Contested(told, after=wait)

    def wrote(self, repair: Repair) -> None:
        """Called when the patch has been sent."""
        self._repairs.repaired(repair[:2])
        for field, value in repair.fields.items():
            self._values[field] = value
            self._values.move_to_end(field)
        while len(self._values) > MOST_FIELDS:
            self._values.popitem(last=False)


def _without_times(value: Any) -> Any:
    """What is put right, without when its conditions changed: that begins anew with each repair."""
    if isinstance(value, str):
        return value  # most are text, of which an abstract class need not be asked
    if isinstance(value, Mapping):
        return {name: _without_times(each) for name, each in value.items() if name != "lastTransitionTime"}
    if isinstance(value, list | tuple):
        return [_without_times(each) for each in value]
    return value


async def _told(client: Client, live: KubeObject, patch: Mapping[str, Any]) -> str:
    paths = [path for path, _ in _leaves(patch)]
    fields = ", ".join(pointer(*path) for path in paths[:SHOWN]) + (" ..." if len(paths) > SHOWN else "")
    fields = fields or pointer("metadata", "labels")  # which is taken over
    try:
        body = (await client.raw("GET", live.KIND.path(live.metadata.namespace, live.metadata.name))).body
        entries = msgspec.json.decode(body)["metadata"].get("managedFields") or ()
    except ApiError:
        entries = ()
    owners = {
        str(entry.get("manager", ""))
        for entry in entries
        if any(_owns(entry.get("fieldsV1") or {}, path) for path in paths)
    }
    me = client.field_manager
    if others := sorted(owners - {me}):
        who = f"{', '.join(others)} (metadata.managedFields)"
    elif not owners:
        who = "somebody, whom metadata.managedFields does not name,"
    else:
        who = f"another process that calls itself {me}, such as a second instance without leader election"
    return (
        f"{live.KIND.kind} {live.key}: {who} keeps changing {fields} back: leave these fields to one of the two; "
        "they are written once a minute until then"
    )


def _leaves(patch: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in patch.items():
        if not isinstance(value, str) and isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, name))
        elif (*path, name) != ("metadata", "resourceVersion"):
            yield (*path, name), value


def _owns(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    for name in path:
        if not fields or f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True
