"""What has happened to an informer: counters for health and metrics, and log lines, though not for each problem.

| what | logged |
|---|---|
| a list or watch failed | a warning, unless for the same reason as before and without having worked since |
| ... because the client was closed: the process is about to end | for debugging |
| an object does not fit its class, or its transform failed | an error, every PATIENCE_FOR_LOGS seconds at most |
| an index function raised | the same |
| a handler raised | the same, for each handler |
"""

from __future__ import annotations

from collections import Counter

from kubeshard.cache.transforms import TransformFailed
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import Gone, NotFound
from kubeshard.core.objects import Key
from kubeshard.listwatch.reflector import Interrupted, ListWatchStats
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.transport import TransportClosed

PATIENCE_FOR_LOGS = 10.0
"""Seconds between two lines about the same problem."""

_log = get_logger("kubeshard.cache")


class InformerStats:
    def __init__(self, stats: ListWatchStats, notices: InformerNotices) -> None:
        self._stats = stats
        self._notices = notices

    @property
    def full_reads(self) -> int:
        """The number of full reads, including the first one."""
        return self._stats.full_reads

    @property
    def rewinds(self) -> int:
        """The number of full reads that showed a rewritten history: the server was restored from a backup."""
        return self._stats.rewinds

    @property
    def errors(self) -> Counter[str]:
        """The number of lists and watches that failed, by the class of the error."""
        return self._stats.errors

    @property
    def failures(self) -> int:
        return self.errors.total()

    @property
    def unexpected_answers(self) -> int:
        """The number of lists and watches that failed because of an invalid response or watch event."""
        return self._stats.unexpected_answers

    @property
    def foreign(self) -> int:
        """Objects left out for their hash: a server that does not filter costs more, nothing else."""
        return self._stats.foreign

    @property
    def handler_errors(self) -> int:
        return self._notices.handler_errors

    @property
    def index_errors(self) -> int:
        return self._notices.index_errors

    @property
    def transform_errors(self) -> int:
        """The number of objects that cannot be read because the transform raised or returned something else."""
        return self._notices.transform_errors

    @property
    def undecodable(self) -> int:
        """Objects that did not fit their class, counted each time they came; those of `transform_errors` too."""
        return self._notices.undecodable


class InformerNotices:
    """The problems of one informer, counted and logged. The counters may be read at any time."""

    def __init__(self, kind: str, clock: Clock) -> None:
        self.handler_errors = 0
        self.index_errors = 0
        self.undecodable = 0
        self.transform_errors = 0
        self._log = _log.bind(kind=kind)
        self._notices = Notices(clock, every=PATIENCE_FOR_LOGS)

    def interrupted(
        self, interruption: Interrupted, namespace: str, *, quiet: bool, optional: bool = False
    ) -> None:
        error, seconds = interruption
        log = self._log.bind(**({"namespace": namespace} if namespace else {}))
        ended = isinstance(error.__cause__, TransportClosed)  # the process is about to
        tell = log.debug if quiet or ended else log.warning
        if isinstance(error, NotFound):
            tell = log.debug if optional else tell
            tell("The API server does not serve this kind", error=error, again_in=seconds)
        elif isinstance(
            error, Gone
        ):  # happens in the best of clusters, after a pause or a changed definition
            log.info(
                "The API server no longer has the latest changes; listing everything again", again_in=seconds
            )
        else:
            tell("List or watch failed", error=error, again_in=seconds)

    def history_went_back(self, version: str) -> None:
        self._log.warning(
            "The API server's history went back, as after a restore of etcd; listed everything again",
            version=version,
        )

    def unreadable(self, error: UndecodableObject) -> None:
        self.undecodable += 1
        self.transform_errors += isinstance(error, TransformFailed)
        if not self._notices.due(type(error).__name__):
            return
        if isinstance(error, TransformFailed) and error.__cause__ is not None:
            self._log.crash(
                "A transform failed; the object cannot be read",
                error.__cause__,
                object=error.key,
                so_far=self.transform_errors,
            )
        else:
            self._log.error("An object does not fit its class", error=error, so_far=self.undecodable)

    def index_failed(self, name: str, key: Key, error: Exception) -> None:
        self.index_errors += 1
        if self._notices.due(f"index {name}"):
            self._log.crash(
                "An index function failed; the object is not in the index",
                error,
                index=name,
                object=str(key),
                so_far=self.index_errors,
            )

    def handler_failed(self, name: str, error: BaseException) -> None:
        self.handler_errors += 1
        if self._notices.due(f"handler {name}"):
            self._log.crash(
                "Handler failed; it is not called with this change again",
                error,
                handler=name,
                so_far=self.handler_errors,
            )
