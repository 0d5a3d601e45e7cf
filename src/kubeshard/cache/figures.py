"""The counters of an informer, for health and metrics."""

from __future__ import annotations

from collections import Counter

from kubeshard.cache.troubles import Troubles
from kubeshard.listwatch.reflector import ListWatchStats


class Figures:
    """Counts what has happened to one informer."""

    def __init__(self, stats: ListWatchStats, troubles: Troubles) -> None:
        self._stats = stats
        self._troubles = troubles

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
        """The number of lists and watches that failed."""
        return self.errors.total()

    @property
    def unexpected_answers(self) -> int:
        """The number of lists and watches that failed because of an invalid response or watch event."""
        return self._stats.unexpected_answers

    @property
    def handler_errors(self) -> int:
        """The number of handler calls that raised."""
        return self._troubles.handler_errors

    @property
    def index_errors(self) -> int:
        """Calls of index functions that raised."""
        return self._troubles.index_errors

    @property
    def transform_errors(self) -> int:
        """The number of objects that cannot be read because the transform raised or returned something else."""
        return self._troubles.transform_errors

    @property
    def undecodable(self) -> int:
        """Objects that did not fit their class, counted each time they came; those of `transform_errors` too."""
        return self._troubles.undecodable
