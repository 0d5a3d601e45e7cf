"""A run's folder as it was left."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard_lab.experiment.levels import Measured
from kubeshard_lab.experiment.recording import (
    RUN,
    Event,
    Gauge,
    Generation,
    Request,
    Row,
    RunRecord,
    Usage,
    read,
    read_run,
)
from kubeshard_lab.experiment.scrapes import read_scrapes


@dataclass(frozen=True)
class Recorded:
    """All rows of a run. Each list is in the order of time, by `due` for the load."""

    run: RunRecord
    requests: list[Request]
    generations: list[Generation]
    events: list[Event]
    usages: list[Usage]
    gauges: list[Gauge]
    measured: Measured
    """The operators' histograms."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Raises ConfigurationError if the folder holds no run. A file that is missing counts as empty."""
        try:
            run = read_run(folder)
            return cls(
                run=run,
                requests=sorted(_rows(folder, Request), key=lambda row: row.due),
                generations=sorted(_rows(folder, Generation), key=lambda row: row.due),
                events=sorted(_rows(folder, Event), key=lambda row: row.time),
                usages=sorted(_rows(folder, Usage), key=lambda row: row.time),
                gauges=sorted(_rows(folder, Gauge), key=lambda row: row.time),
                measured=Measured(
                    run, (each for each in read_scrapes(folder) if each.role == "operator"), (), ()
                ),
            )
        except FileNotFoundError:
            raise ConfigurationError(f"{folder} is not the folder of a run: it has no {RUN}") from None
        except (ValueError, msgspec.MsgspecError) as error:
            raise ConfigurationError(f"{folder} cannot be read: {error}") from None

    @property
    def begin(self) -> float:
        """When the load began or, if it never did, the first thing that was recorded. NaN if nothing was."""
        return self.run.began if math.isfinite(self.run.began) else min(self._times(), default=math.nan)

    @property
    def end(self) -> float:
        """When the load ended or, if the run was cut off, the last thing that was recorded."""
        return self.run.ended if math.isfinite(self.run.ended) else max(self._times(), default=math.nan)

    @property
    def seconds(self) -> float:
        return self.end - self.begin if self.end > self.begin else 0.0

    def _times(self) -> Iterable[float]:
        for rows in (self.events, self.usages, self.gauges):
            yield from (row.time for row in rows)
        yield from (row.sent for row in self.requests)


def _rows(folder: Path, row: type[Row]) -> list[Row]:
    try:
        return list(read(folder, row))
    except FileNotFoundError:
        return []
