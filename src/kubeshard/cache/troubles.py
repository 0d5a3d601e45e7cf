"""Non-fatal problems of an informer: counted for metrics, and logged, but not each time.

| what | logged |
|---|---|
| a list or watch failed | a warning, unless for the same reason as before and without having worked since |
| an object does not fit its class, or its transform failed | an error, every PATIENCE_FOR_LOGS seconds at most |
| an index function raised | the same |
| a handler raised | the same, for each handler |
"""

from __future__ import annotations

from kubeshard.cache.transforms import TransformFailed
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import NotFound
from kubeshard.core.objects import Key
from kubeshard.listwatch.reflector import Interrupted
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger

PATIENCE_FOR_LOGS = 10.0
"""Seconds between two lines about the same problem."""

_log = get_logger("kubeshard.cache")


class Troubles:
    """The problems of one informer. The counters may be read at any time."""

    def __init__(self, kind: str, clock: Clock) -> None:
        self.handler_errors = 0
        self.index_errors = 0
        self.undecodable = 0
        self.transform_errors = 0
        self._clock = clock
        self._log = _log.bind(kind=kind)
        self._due: dict[str, float] = {}

    def interrupted(
        self, interruption: Interrupted, part: str, *, again: bool, optional: bool = False
    ) -> None:
        error, seconds = interruption
        log = self._log.bind(**({"namespace": part} if part else {}))
        tell = log.debug if again or not seconds else log.warning
        if isinstance(error, NotFound):
            tell = log.debug if optional else tell
            tell("The API server does not serve this kind", error=error, again_in=seconds)
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
        if not self._is_due(type(error).__name__):
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
        if self._is_due(f"index {name}"):
            self._log.crash(
                "An index function failed; the object is not in the index",
                error,
                index=name,
                object=str(key),
                so_far=self.index_errors,
            )

    def handler_failed(self, name: str, error: BaseException) -> None:
        self.handler_errors += 1
        if self._is_due(f"handler {name}"):
            self._log.crash(
                "Handler failed; it is not called with this change again",
                error,
                handler=name,
                so_far=self.handler_errors,
            )

    def _is_due(self, what: str) -> bool:
        now = self._clock.monotonic()
        if now < self._due.get(what, now):
            return False
        self._due[what] = now + PATIENCE_FOR_LOGS
        return True
