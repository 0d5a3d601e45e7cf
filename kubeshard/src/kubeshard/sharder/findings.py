"""What the sharder service writes into a ring's conditions: of a ring without a ControllerRing, in the log of the
operator that is its own sharder, and as Kubernetes events about what there is instead (`about`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeshard.controller.context import EventSink
from kubeshard.controller.event_series import ObjectReference
from kubeshard.core.conditions import Condition
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharding.conditions import CHANGING, LOGGED_BEFORE, OWN_CONDITIONS, findings
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.shard_states import MAX_SHARDS

_log = get_logger("kubeshard.sharder")


class LoggedFindings:
    """Tells each finding once, and its end: of one process, however often it leads."""

    def __init__(self, observer: LeaseObserver, events: EventSink, about: ObjectReference) -> None:
        self._observer = observer
        self._events = events.reporting_as("sharder")
        self._about = about
        self._notices = Notices()

    def tell(self, ring: Ring, *, ended: bool = True) -> Sequence[Condition]:
        """Returns what there is. `ended`: whether what is not there any more has ended, or is not known yet."""
        shards = self._observer.shards(ring.name)
        present = [shard for shard in shards if not shard.deleted]
        found = findings(ring.report, ring.resources, present, max_shards=MAX_SHARDS)
        for each in found:
            if self._notices.due(each.type, "" if each.type in CHANGING else each.message):
                self._events.event(self._about, "Warning", each.reason, each.message, action="Reconcile")
                if each.type not in LOGGED_BEFORE:
                    _log.warning(
                        "The ring has a problem", ring=ring.name, what=each.type, problem=each.message
                    )
        for type_ in sorted(OWN_CONDITIONS - {each.type for each in found}) if ended else ():
            if self._notices.resolved(type_) and type_ not in LOGGED_BEFORE:
                _log.info("A problem of the ring is resolved", ring=ring.name, what=type_)
        return found
