"""What the sharder service writes into a ring's conditions, in the log of an operator that is its own sharder."""

from __future__ import annotations

from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharding.conditions import CHANGING, LOGGED_BEFORE, OWN_CONDITIONS, findings
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.shard_states import MAX_SHARDS

_log = get_logger("kubeshard.sharder")


class LoggedFindings:
    """Tells each finding once, and its end."""

    def __init__(self, observer: LeaseObserver) -> None:
        self._observer = observer
        self._notices = Notices()

    def tell(self, ring: Ring) -> None:
        shards = self._observer.shards(ring.name)
        present = [shard for shard in shards if not shard.deleted]
        found = {
            condition.type: condition.message
            for condition in findings(ring.report, ring.resources, present, max_shards=MAX_SHARDS)
        }
        for type_, message in found.items():
            if type_ in LOGGED_BEFORE:
                continue
            if self._notices.due(type_, "" if type_ in CHANGING else message):
                _log.warning("The ring has a problem", ring=ring.name, what=type_, problem=message)
        for type_ in sorted(OWN_CONDITIONS - found.keys()):
            if self._notices.resolved(type_):
                _log.info("A problem of the ring is resolved", ring=ring.name, what=type_)
